"""What a capture makes of ranks that hold shares of the states, or nothing at all, and how many it holds at once."""

from __future__ import annotations

import json
import weakref
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file

from eagle_parity.capture.assembly import AssembledRank, LocatedRank, SessionParts
from eagle_parity.capture.recorded import write_recording
from eagle_parity.capture.sending import Sent, SentRequest
from eagle_parity.capture.spool.folder import read_token
from eagle_parity.capture.spool.request_ids import new_session, request_id
from eagle_parity.capture.spool.worker import Spool
from eagle_parity.comparison.record import judge_recording
from eagle_parity.errors import InputError
from eagle_parity.readers import open_hidden_states
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TOKENS, HIDDEN, RANKS = 5, 4, 3


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eagle_parity.capture.spool.limits.MIN_FREE_BYTES", 0)


def recorded(
    folder: Path,
    *,
    width: int,
    max_tokens: int = 100,
    wrong_input_of: int | None = None,
    last_states: Mapping[str, torch.Tensor | None] = MappingProxyType({}),
) -> tuple[Sent, SessionParts]:
    """A session of one request on each rank: slots of some width, the last state whole, and what the head got."""
    session = new_session()
    for rank in range(RANKS):
        spool = Spool(folder, f"tp{rank}", max_tokens=max_tokens)
        marks = spool.marks([request_id(read_token(folder), session, 0)])
        parallel = {"tp_size": RANKS, "tp_rank": rank}
        spool.describe(session, {"parallel": parallel, "target": {"hidden_size": HIDDEN, "num_layers": 8}})
        rows = torch.arange(TOKENS)
        slots = {f"slot.{slot}": torch.randn(TOKENS, width) for slot in range(2)}
        last = last_states.get(f"tp{rank}", torch.randn(TOKENS, HIDDEN))
        tensors = {"token_ids": rows, "positions": rows, **slots, **({} if last is None else {"last_state": last})}
        spool.write("aux", tensors, marks, [slice(0, TOKENS)], mode="EXTEND")
        got = torch.cat(list(slots.values()), dim=1) + (rank == wrong_input_of)
        head = {"token_ids": rows, "positions": rows, "draft_input": got}
        spool.write("draft", head, marks, [slice(0, TOKENS)], mode="EXTEND")
    request = SentRequest(number=0, name="one", token_ids=list(range(TOKENS)))
    sent = Sent(engine="vllm", version="0.32.0", server="http://127.0.0.1:1", session=session, requests=[request])
    return sent, SessionParts(folder / session)


@pytest.mark.parametrize(("width", "last_state"), [(HIDDEN, "post_norm"), (HIDDEN // 2, None)])
def test_shares_of_the_hidden_dimension_go_without_the_last_state(
    tmp_path: Path, width: int, last_state: str | None
) -> None:
    sent, parts = recorded(tmp_path / "spool", width=width)
    write_recording(sent, parts, tmp_path / "live", engine=None, overwrite=False)
    manifest = json.loads((tmp_path / "live" / "manifest.json").read_text("utf-8"))
    assert manifest["last_state"] == last_state
    assert manifest["target"]["hidden_size"] == width
    assert manifest["sequences"][0]["ranks"] == ["tp0", "tp1", "tp2"]


@pytest.mark.parametrize(
    ("last_states", "told"),
    [
        ({"tp1": None}, {"tp1": "one: no last state, which another rank has"}),
        ({"tp1": torch.zeros(TOKENS, HIDDEN, dtype=torch.bfloat16)}, {"tp1": "one: its last state, 4 bfloat16 a row"}),
        ({"tp0": torch.zeros(TOKENS, HIDDEN + 1)}, {"tp0": "one: its last state, 5 float32 a row, has no place"}),
        ({}, {}),
    ],
)
def test_a_last_state_that_has_no_place_is_told(
    tmp_path: Path, last_states: dict[str, torch.Tensor | None], told: dict[str, str]
) -> None:
    sent, parts = recorded(tmp_path / "spool", width=HIDDEN, last_states=last_states)
    write_recording(sent, parts, tmp_path / "live", engine=None, overwrite=False)
    outcomes = judge_recording(open_hidden_states(tmp_path / "live", role="live"))
    skips = [o.reason for o in outcomes if isinstance(o, Skip) and o.check == "capture-complete"]
    assert len(skips) == len(told)
    assert all(any(reason.startswith(f"rank {rank}, {text}") for reason in skips) for rank, text in told.items())


def test_what_stopped_the_hook_is_told(tmp_path: Path) -> None:
    sent, parts = recorded(tmp_path / "spool", width=HIDDEN, max_tokens=TOKENS - 1)
    with pytest.raises(InputError, match="the hook stopped at its limit"):
        write_recording(sent, parts, tmp_path / "live", engine=None, overwrite=False)


@pytest.mark.parametrize("wrong_input_of", [None, 0, 2])
def test_the_states_of_one_rank_at_a_time_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong_input_of: int | None
) -> None:
    sent, parts = recorded(tmp_path / "spool", width=HIDDEN, wrong_input_of=wrong_input_of)
    states: list[weakref.ref[torch.Tensor]] = []
    held: list[int] = []
    real = LocatedRank.read

    def read(located: LocatedRank) -> AssembledRank:
        held.append(sum(state() is not None for state in states))  # of the ranks before this one
        assembled = real(located)
        states.extend(weakref.ref(state) for state in assembled.states)
        return assembled

    monkeypatch.setattr(LocatedRank, "read", read)
    write_recording(sent, parts, tmp_path / "live", engine=None, overwrite=False)
    assert len(states) == 2 * RANKS
    assert held == [0] * RANKS
    (sequence,) = json.loads((tmp_path / "live" / "manifest.json").read_text("utf-8"))["sequences"]
    assert sequence["draft_input"] == ("equal" if wrong_input_of is None else "differs")
    tensors = load_file(tmp_path / "live" / "sequence_000000.safetensors")
    if wrong_input_of is None:
        assert "draft_input" not in tensors
        return
    whose = tmp_path / "live" / ("" if wrong_input_of == 0 else f"ranks/tp{wrong_input_of}")
    own = load_file(whose / "sequence_000000.safetensors")
    assert torch.equal(tensors["draft_input"], torch.cat([own["slot.0"], own["slot.1"]], dim=1) + 1)
