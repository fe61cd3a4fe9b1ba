"""What a capture of a running server says at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eagle_parity.capture.live import LiveCapture
    from eagle_parity.cli.live_options import AskedBoundaries
    from eagle_parity.findings import Finding
    from eagle_parity.results import FailOn, Result, Skip


def conclude_live(
    capture: LiveCapture,
    *,
    server: str,
    tokens_from: str,
    output: str,
    asked: AskedBoundaries | None = None,
    fail_on: FailOn,
) -> Result:
    """The result: what was recorded, and what that tells by itself.

    Args:
        capture: as it was made.
        server: its address.
        tokens_from: where the token ids came from.
        output: the capture's folder.
        asked: the boundaries that it was to have.
        fail_on: from which severity on it fails.
    """
    import msgspec

    from eagle_parity.capture.reference_launch import missing_boundaries
    from eagle_parity.comparison.record import judge_recording
    from eagle_parity.readers import open_hidden_states
    from eagle_parity.results import Input, Skip, WiringSummary, conclude

    manifest, live = capture.manifest, capture.manifest.live
    assert live is not None  # noqa: S101  a capture of a server has it
    outcomes: list[Finding | Skip] = [
        Skip(check=f"capture of {name}", reason=reason) for name, reason in capture.sent.skipped
    ]
    outcomes += judge_recording(open_hidden_states(output, role="live"))
    lacking = None if asked is None else missing_boundaries(manifest, asked.boundaries)
    if lacking is not None:
        outcomes.append(Skip(check="boundaries", reason=lacking, blocks_verdict=True))
    measurements: dict[str, Any] = {
        "output": output,
        "engine": manifest.producer.engine,
        "sequences": len(manifest.sequences),
        "tokens": manifest.tokens,
        "slots": list(manifest.slots),
        "last_state": manifest.last_state,
        "hidden_size": manifest.target.hidden_size,
        "dtype": manifest.dtype,
        "target_class": live.target_class,
        "draft_class": live.draft_class,
        "layer_set": live.layer_set,
        "tap": live.tap,
        "ranks": [rank.name for rank in live.ranks],
        "draft_input": {
            state: count
            for state in ("equal", "differs", "normed", "absent")
            if (count := sum(sequence.draft_input == state for sequence in manifest.sequences))
        },
        "incomplete": msgspec.to_builtins(live.incomplete),
        "conditions": list(live.conditions),
        "acceptance": None if live.acceptance is None else live.acceptance.told(),
        "seconds": round(capture.seconds, 2),
    }
    return conclude(
        "capture",
        outcomes=outcomes,
        fail_on=fail_on,
        judged=True,  # by itself: that it is complete, and that its parts agree
        inputs=[
            Input(role="server", path=server, format=manifest.producer.engine, hidden_size=manifest.target.hidden_size),
            Input(
                role="tokens",
                path=tokens_from,
                format="token ids",
                sequences=len(manifest.sequences),
                tokens=manifest.tokens,
            ),
        ],
        wiring=WiringSummary(num_layers=manifest.target.num_layers, live=list(manifest.slots)),
        measurements=measurements,
    )
