"""Results as the commands write them, for the reporters to draw."""

from __future__ import annotations

from typing import Any

import msgspec

from eagle_parity import findings
from eagle_parity.comparison.measurements import (
    Candidate,
    Dimension,
    Fit,
    Measurements,
    PairMeasurement,
    SequenceTally,
    Side,
    SlotMeasurement,
    StateMeasurement,
)
from eagle_parity.comparison.thresholds import Thresholds
from eagle_parity.results import (
    FailOn,
    Input,
    LastStates,
    Outcome,
    Result,
    ServedWiring,
    Skip,
    WiringSummary,
    conclude,
)

KEY = "eagle_config.eagle_aux_hidden_state_layer_ids"
TARGET = Input(role="target", path="kimi-k2.5", format="KimiK25ForConditionalGeneration", hidden_size=7168)


def founding_story() -> Result:
    """check-config of the draft that the project started from, on three engines, one of which fails."""
    draft = Input(role="draft", path="kimi-k2.5-eagle3/config.json", format="specforge", slots=3, hidden_size=7168)
    served = [
        ServedWiring(
            engine="sglang@0.5.12",
            options={"embedding-capture": "patched"},
            boundaries=[0, 3, 31],
            key=KEY,
            ids=[-1, 2, 30],
            default=False,
            outcome=Outcome.SERVES,
        ),
        ServedWiring(
            engine="sglang@0.5.23",
            options={},
            boundaries=[2, 30],
            key=KEY,
            ids=[-1, 2, 30],
            default=False,
            outcome=Outcome.FAILS_AT_FIRST_REQUEST,
            reason="two of three states are captured, and the packer raises",
        ),
        ServedWiring(
            engine="vllm@0.32.0",
            options={"runner": "v2"},
            boundaries=[2, 30, 58],
            key=None,
            default=True,
            outcome=Outcome.SERVES,
        ),
    ]
    return conclude(
        "check-config",
        outcomes=[
            findings.SPURIOUS_EMBEDDING.finding(
                "Id -1, read by SGLang 0.5.12 as boundary 0, puts the token embedding into slot 0; the features behind "
                "it arrive one slot late.",
                remedy=f"Write [2, 30, 58] under {KEY}.",
                evidence={"ids": [-1, 2, 30], "trained": [3, 31, 59], "served": [0, 3, 31]},
                engine="sglang@0.5.12:embedding-capture=patched",
                slot=0,
            ),
            findings.ENGINE_FAILURE.finding(
                "Two of the three states are captured (-1 never matches a layer), and the engine dies at the first "
                "request.",
                remedy=f"Write [3, 31, 59] under {KEY}.",
                evidence={"ids": [-1, 2, 30], "delivered": [2, 30], "expected_slots": 3},
                engine="sglang@0.5.23",
            ),
            findings.LAYER_IDS_IGNORED.finding(
                f"The list stands under {KEY}, which the V2 runner doesn't read; it takes its default.",
                remedy="Write [3, 31, 59] under eagle_aux_hidden_state_layer_ids at top level.",
                evidence={"ids": [-1, 2, 30], "default": [2, 30, 58]},
                engine="vllm@0.32.0:runner=v2",
            ),
            findings.KNOWN_ENGINE_DEFECT.finding(
                "Before 0.5.14 fused all-reduce hands partial sums to the head.",
                remedy="Upgrade to 0.5.14, or pass --disable-flashinfer-allreduce-fusion.",
                engine="sglang@0.5.12:embedding-capture=patched",
            ),
            Skip(check="fc-width", reason="the draft's weights are not here; pass the folder that holds them"),
        ],
        judged=True,
        inputs=[draft, TARGET],
        wiring=WiringSummary(
            num_layers=61, trained=[3, 31, 59], last_state=LastStates(trained="post_norm"), served=served
        ),
    )


def parity() -> Result:
    """check-config of the same draft after the fix."""
    return conclude(
        "check-config",
        outcomes=[],
        judged=True,
        inputs=[Input(role="draft", path="fixed/config.json", format="specforge", slots=3), TARGET],
        wiring=WiringSummary(
            num_layers=61,
            trained=[3, 31, 59],
            served=[
                ServedWiring(
                    engine="sglang@0.5.23",
                    options={},
                    boundaries=[3, 31, 59],
                    key=KEY,
                    ids=[3, 31, 59],
                    default=False,
                    outcome=Outcome.SERVES,
                )
            ],
        ),
    )


def too_few_tokens() -> Result:
    """diff-captures of two sides with too little in common to conclude anything."""
    return conclude(
        "diff-captures",
        outcomes=[
            Skip(
                check="layer identity",
                reason="5 tokens are compared and 8 are needed; capture the shards' own token ids with --replay",
                blocks_verdict=True,
            ),
            Skip(check="rank-partial", reason="the capture has one rank"),
        ],
        judged=True,
        inputs=[
            Input(
                role="trained",
                path="shards/",
                format="speculators-list",
                sequences=4,
                tokens=16_000,
                slots=3,
                hidden_size=576,
            ),
            Input(role="live", path="capture/", format="capture", sequences=1, tokens=5, slots=3, hidden_size=576),
        ],
        wiring=WiringSummary(num_layers=30, trained=[3, 16, 28], live=[None, None, 28]),
        measurements={**msgspec.json.decode(msgspec.json.encode(_measurements())), "identified": _identified()},
    )


def _identified() -> list[dict[str, Any]]:
    """What ``judge.identified`` says of such slots: one known state, one that is none, one that agrees."""
    nearest = {"nearest": "boundary 0", "distance": 0.004, "runner_up": "boundary 1", "runner_up_distance": 0.51}
    return [
        {"slot": 0, "trained": 3, "live": 0, "agrees": False, "limit": 0.06, "bad_rows": 0, "by": nearest},
        {"slot": 1, "trained": 16, "live": None, "agrees": False, "limit": 0.06, "bad_rows": 0, "by": {}},
        {"slot": 2, "trained": 28, "live": 28, "agrees": True, "limit": 0.06, "bad_rows": 0, "by": {}},
    ]


def _state(*candidates: tuple[int, float]) -> StateMeasurement:
    return StateMeasurement(
        rows=5,
        non_finite_rows=0,
        dtype="bfloat16",
        candidates=[
            Candidate(label=f"boundary {boundary}", boundary=boundary, distance=distance)
            for boundary, distance in candidates
        ],
        median_norm=31.5,
    )


def _measurements() -> Measurements:
    dimensions = [
        Dimension(
            index=index,
            mean_trained=0.51,
            mean_live=-0.1234567,
            std_trained=1.5,
            std_live=1.25,
            max_difference=9.75,
            rms_difference=2.5,
        )
        for index in (301, 17, 5, 6)
    ]
    pair = PairMeasurement(
        rows=5,
        distance=0.7123456,
        p90=0.9,
        p99=1.1,
        largest=1.2,
        errors=[(0.8, 4), (1.6, 1)],
        worst_sequence=("data_0.pt", 0.75),
        sink_rows=1,
        sink_distance=0.01,
        mean_correlation=0.4,
        worst_dimensions=dimensions,
        spread_trained=2.5,
        spread_live=2.4,
        bad_sequences=1,
        bad_sinks=0,
        sequences=1,
    )
    fit = Fit(
        name="scaled",
        candidate=Candidate(label="boundary 16", boundary=16, distance=0.5),
        formula="2.00 times boundary 16",
        distance=0.0123,
        parameters=1,
        values={"factor": 2.0},
    )
    return Measurements(
        thresholds=Thresholds(),
        num_layers=30,
        tokens=5,
        sequences=SequenceTally(paired=1, unpaired_trained=3, contexts=5, mismatched=["data_1.pt: 9 of 40 ids differ"]),
        trained=Side(role="trained", slots=3, hidden_size=576, declared=[3, 16, 28]),
        live=Side(role="live", slots=3, hidden_size=576, declared=[None, None, None]),
        slots=[
            SlotMeasurement(
                slot=0,
                trained=_state((3, 0.01), (2, 0.48)),
                live=_state((0, 0.004), (1, 0.51)),
                pair=pair,
            ),
            SlotMeasurement(
                slot=1,
                trained=_state((16, 0.01), (15, 0.3)),
                live=_state((16, 0.5), (15, 0.55)),
                pair=pair,
                fits=[fit],
            ),
            SlotMeasurement(
                slot=2, trained=_state((28, 0.01), (27, 0.3)), live=_state((28, 0.012), (27, 0.31)), pair=None
            ),
        ],
        reference_boundaries=list(range(31)),
        embedding_rows=False,
        seconds=1.5,
    )


def hostile() -> Result:
    """A result in which every text of a file tries to be more than text."""
    evil = (
        "\x1b[31m\x1b]8;;http://evil.example\x07 [bold]x[/bold] "
        "|`<script>alert(1)</script>`| <b>h</b> **b** @everyone\n# h\u202e"
    )
    return conclude(
        evil,
        outcomes=[
            findings.LAYER_MISMATCH.finding(
                evil, remedy=f"- {evil}", evidence={evil: evil, "nested": {evil: [evil]}}, engine=evil
            ),
            Skip(check=evil, reason=evil),
        ],
        judged=True,
        fail_on=FailOn.ERROR,
        inputs=[Input(role=evil, path=evil, format=evil)],
        wiring=WiringSummary(
            trained=[1],
            served=[
                ServedWiring(
                    engine=evil,
                    options={evil: evil},
                    boundaries=[2],
                    key=evil,
                    default=False,
                    outcome=Outcome.SERVES,
                    reason=evil,
                )
            ],
        ),
        measurements={evil: evil, "rows": [{evil: evil}]},
    )
