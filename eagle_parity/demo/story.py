"""The founding story, told by running the commands that a user would run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eagle_parity.cli.streams import write_stdout
from eagle_parity.findings import SPURIOUS_EMBEDDING
from eagle_parity.readers.containers.stored_tensor import require_torch
from eagle_parity.results import ExitStatus, Result, decode_result
from eagle_parity.wiring import format_boundaries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DATA = Path(__file__).parent / "data"
ENGINE = "sglang@0.5.23"
TRAINED = (3, 16, 28)
"""What the head of the story was trained on; the recorded shards hold these boundaries."""

INTRODUCTION = """\
An EAGLE-3 head for a 30-layer target (SmolLM2-135M) was trained on boundaries 3, 16 and 28. Its config says
[-1, 2, 15]. The server is healthy, the text is right, and the head accepts next to nothing. Why?
The states are real, recorded with transformers; the live ones are what SGLang feeds the head for these ids.
"""


@dataclass(frozen=True)
class Step:
    """One command of the story.

    Attributes:
        why: what a person wants to know here.
        arguments: as typed, with ``$DEMO`` for the data and ``$OUT`` for the results.
        expected: the exit status that the story has.
    """

    why: str
    arguments: str
    expected: ExitStatus


STEPS = (
    Step(
        "Before the server starts, from the configs alone:",
        f"check-config $DEMO/draft --target $DEMO/target --trained-boundaries 3,16,28 --engine {ENGINE}",
        ExitStatus.FOUND,
    ),
    Step(
        "With the server running, from what it feeds the head (nothing else is known):",
        "diff-captures $DEMO/shards $DEMO/live",
        ExitStatus.FOUND,
    ),
    Step(
        "In CI: both as JSON, the second with a reference that names every layer...",
        f"check-config $DEMO/draft --target $DEMO/target --trained-boundaries 3,16,28 --engine {ENGINE}"
        " --format json --output $OUT/check-config.json",
        ExitStatus.FOUND,
    ),
    Step(
        "",
        "diff-captures $DEMO/shards $DEMO/live --reference $DEMO/reference --target $DEMO/target"
        " --format json --output $OUT/diff-captures.json",
        ExitStatus.FOUND,
    ),
    Step(
        "... and one report of the two:",
        "report $OUT/check-config.json $OUT/diff-captures.json",
        ExitStatus.FOUND,
    ),
    Step(
        "What to write instead:",
        "ids 3,16,28 --target $DEMO/target",
        ExitStatus.PARITY,
    ),
)


def tell(output: Path, run: Callable[[Sequence[str]], int], *, color: str) -> ExitStatus:
    """Runs the story and says whether the fault was found.

    Args:
        output: an existing folder for the results.
        run: the program: arguments in, exit status out.
        color: what the commands are told by ``--color``.

    Returns:
        0 when every command said what the story has, else 1.

    Raises:
        MissingExtraError: torch isn't installed, and the states can't be read.
    """
    require_torch()
    _say(INTRODUCTION)
    _say(f"DEMO={shlex.quote(str(DATA))}\nOUT={shlex.quote(str(output))}\n")
    surprises = []
    for step in STEPS:
        if step.why:
            _say(f"\n# {step.why}\n")
        _say(f"$ eagle-parity {step.arguments}\n")
        places = {"$DEMO": str(DATA), "$OUT": str(output)}
        arguments = [_fill(argument, places) for argument in step.arguments.split()]
        status = run([*arguments, "--color", color])
        if status != step.expected:
            surprises.append(f"`{step.arguments}` ended with {status}, not {step.expected.value}")
    if not surprises:
        surprises = _missing_findings(output)
    if surprises:
        _say("\nThe demonstration went wrong: " + "; ".join(surprises) + "\n")
        return ExitStatus.FOUND
    return ExitStatus.PARITY


def _fill(argument: str, places: dict[str, str]) -> str:
    for name, place in places.items():
        argument = argument.replace(name, place)
    return argument


def _missing_findings(output: Path) -> list[str]:
    """What the two results should say and don't; the closing lines when they do."""
    config = _read(output / "check-config.json")
    diff = _read(output / "diff-captures.json")
    missing = [
        f"{result.command} didn't find {SPURIOUS_EMBEDDING.name}"
        for result in (config, diff)
        if SPURIOUS_EMBEDDING.name not in {finding.name for finding in result.findings}
    ]
    served = config.wiring.served[0].boundaries
    if diff.wiring.live != served:
        missing.append(f"the live wiring {diff.wiring.live} isn't the served one {served}")
    if diff.wiring.trained != list(TRAINED):
        missing.append(f"the trained wiring was measured as {diff.wiring.trained}")
    if not missing:
        remedy = next(finding.remedy for finding in config.findings if finding.name == SPURIOUS_EMBEDDING.name)
        _say(
            f"\nThe head was trained on {format_boundaries(TRAINED)}; {ENGINE} serves {format_boundaries(served)}, and "
            f"that is what was measured live: {format_boundaries(diff.wiring.live or [])}.\n{remedy}\n"
        )
    return missing


def _read(path: Path) -> Result:
    return decode_result(path.read_bytes(), path=path)


def _say(text: str) -> None:
    write_stdout(text)
