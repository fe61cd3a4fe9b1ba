"""An engine's reason is told once: by a finding about exactly that version and variant, or under the table."""

from __future__ import annotations

import pytest

from eagle_parity.findings import ENGINE_FAILURE
from eagle_parity.reporters.wirings import wirings_table
from eagle_parity.results import Outcome, ServedWiring, WiringSummary


def served(engine: str, **options: str) -> ServedWiring:
    return ServedWiring(
        engine=engine,
        options=options,
        boundaries=[2, 30],
        key=None,
        default=False,
        outcome=Outcome.FAILS_AT_LOAD,
        reason=f"reason of {engine} {options}",
    )


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ("sglang@0.5.12", [False, True, True, True]),
        ("sglang@0.5.12.post1", [True, False, True, True]),
        ("vllm@0.32.0", [True, True, False, False]),
        ("vllm@0.32.0:runner=v2", [True, True, True, False]),
        ("vllm@0.32.0:impl=native,runner=v2", [True, True, True, True]),
    ],
)
def test_a_finding_takes_the_place_of_its_own_engine_s_note(engine: str, told: list[bool]) -> None:
    every = [
        served("sglang@0.5.12"),
        served("sglang@0.5.12.post1"),
        served("vllm@0.32.0", runner="v1"),
        served("vllm@0.32.0", runner="v2"),
    ]
    notes = wirings_table(WiringSummary(served=every), [ENGINE_FAILURE.finding("it fails", engine=engine)]).notes
    assert [any(one.reason in note for note in notes) for one in every if one.reason] == told
