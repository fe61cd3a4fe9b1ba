"""The result document: what every command writes, ``schema_version`` 1.

Others build on these names. Field for field this is the published JSON Schema (``schema.py`` writes it from these
types); a breaking change needs a new version.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from eagle_parity import __version__
from eagle_parity.errors import InputError
from eagle_parity.findings import Finding, Severity
from eagle_parity.wiring import BoundaryEntry

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA_VERSION = 1

INFORMING_COMMANDS = frozenset({"ids", "inspect", "checks", "explain", "engines", "capture"})
"""Commands that judge no parity: a report of nothing else has judged nothing."""

NOTHING_JUDGED = "nothing was judged"


class Verdict(StrEnum):
    """What a run concluded."""

    PASS = "pass"  # noqa: S105  a verdict, no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


class FailOn(StrEnum):
    """From which severity a finding fails the run."""

    ERROR = "error"
    WARNING = "warning"
    NEVER = "never"


class ExitStatus(IntEnum):
    """The same everywhere; the first that applies in the order 2, 1, 3, 0."""

    PARITY = 0
    FOUND = 1
    USAGE = 2
    INCONCLUSIVE = 3


class Outcome(StrEnum):
    """What becomes of an engine that is started with a draft."""

    SERVES = "serves"
    FAILS_AT_LOAD = "fails-at-load"
    FAILS_AT_FIRST_REQUEST = "fails-at-first-request"
    UNSUPPORTED = "unsupported"


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """Who wrote the document."""

    name: str = "eagle-parity"
    version: str = __version__


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was read.

    Attributes:
        role: draft, target, trained, live, reference, noise, tokens or result.
        path: as it was given.
        format: what it turned out to be.
        sequences, tokens, slots, hidden_size: None where the kind of input has none.
    """

    role: str
    path: str
    format: str
    sequences: int | None = None
    tokens: int | None = None
    slots: int | None = None
    hidden_size: int | None = None


class ServedWiring(msgspec.Struct, frozen=True, kw_only=True):
    """What one variant of one engine makes of the draft.

    Attributes:
        engine: ``sglang@0.5.12``.
        options: what of the engine's reading depends on more than the version, ``{"runner": "v2"}``.
        boundaries: the wiring in concatenation order, as far as the engine gets: for a failing outcome, what it asks
            for and its forward knows.
        key: the config key that the ids were read from; None where the default was taken.
        ids: the id list as it stands under the key.
        default: whether the engine's default was taken.
        outcome: whether it serves, and if not, when it fails.
        reason: the failure in words.
        source: engine version and file that the rule was read in.
    """

    engine: str
    options: dict[str, str]
    boundaries: list[BoundaryEntry]
    key: str | None
    default: bool
    outcome: Outcome
    ids: list[int] | None = None
    reason: str | None = None
    source: str | None = None


class LastStates(msgspec.Struct, frozen=True, kw_only=True):
    """The last state of each side; None where unknown or absent."""

    trained: BoundaryEntry = None
    live: BoundaryEntry = None


class WiringSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The three wirings side by side; None where one isn't there at all.

    Attributes:
        num_layers: N.
        trained, live: a boundary a slot.
        trained_from, live_from: where they come from: ``measured``, or what declared them.
        last_state: of each side.
        served: what each engine variant makes of the draft.
    """

    num_layers: int | None = None
    trained: list[BoundaryEntry] | None = None
    live: list[BoundaryEntry] | None = None
    trained_from: str | None = None
    live_from: str | None = None
    last_state: LastStates = LastStates()
    served: list[ServedWiring] = []


class Skip(msgspec.Struct, frozen=True, kw_only=True):
    """A check that could not run: told, never a pass.

    Attributes:
        check: the check, or the question that stayed open.
        reason: why, and what would let it run.
        blocks_verdict: whether the verdict needed it, so that the run is inconclusive.
    """

    check: str
    reason: str
    blocks_verdict: bool = False


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """One run of one command; ``fail_on`` is the severity that the verdict was drawn by."""

    schema_version: Literal[1] = 1
    tool: Tool = Tool()
    command: str
    verdict: Verdict
    fail_on: FailOn = FailOn.ERROR
    inputs: list[Input] = []
    wiring: WiringSummary = WiringSummary()
    findings: list[Finding] = []
    measurements: dict[str, Any] = {}
    skipped: list[Skip] = []
    results: list[Result] | msgspec.UnsetType = msgspec.UNSET


def conclude(
    command: str,
    *,
    outcomes: Iterable[Finding | Skip],
    judged: bool,
    fail_on: FailOn = FailOn.ERROR,
    inputs: Iterable[Input] = (),
    wiring: WiringSummary | None = None,
    measurements: dict[str, Any] | None = None,
) -> Result:
    """Puts a result together and draws its verdict.

    Args:
        command: the subcommand.
        outcomes: findings and skips, in any order; findings are sorted by severity, then code, then slot.
        judged: whether anything was compared at all.
        fail_on: the severity from which a finding fails the run; ``never`` leaves the verdict to errors.
        inputs: what was read.
        wiring: the wirings side by side.
        measurements: the command's own content.
    """
    findings: list[Finding] = []
    skipped: list[Skip] = []
    for outcome in outcomes:
        if isinstance(outcome, Finding):
            findings.append(outcome)
        else:
            skipped.append(outcome)
    if not judged and not any(skip.blocks_verdict for skip in skipped):
        skipped.append(Skip(check=command, reason=NOTHING_JUDGED, blocks_verdict=True))
    findings.sort(key=lambda f: (-f.severity.rank, f.code, -1 if f.slot is None else f.slot, f.engine or ""))
    return Result(
        command=command,
        verdict=draw_verdict(findings, skipped, fail_on=fail_on),
        fail_on=fail_on,
        inputs=list(inputs),
        wiring=wiring or WiringSummary(),
        findings=findings,
        measurements=measurements or {},
        skipped=skipped,
    )


def draw_verdict(findings: Iterable[Finding], skipped: Iterable[Skip], *, fail_on: FailOn = FailOn.ERROR) -> Verdict:
    """Fail where a finding is grave enough, inconclusive where the verdict lacks something, else pass."""
    gate = FailOn.ERROR if fail_on is FailOn.NEVER else fail_on
    if any(f.severity.rank >= Severity(gate.value).rank for f in findings):
        return Verdict.FAIL
    return Verdict.INCONCLUSIVE if any(skip.blocks_verdict for skip in skipped) else Verdict.PASS


def exit_status(result: Result, fail_on: FailOn) -> ExitStatus:
    """The exit status of a run that got as far as a result."""
    if fail_on is not FailOn.NEVER:
        gate = Severity(fail_on.value).rank
        if any(f.severity.rank >= gate for f in result.findings):
            return ExitStatus.FOUND
    # A verdict of fail, where it doesn't end the run, must not hide that something couldn't be judged.
    if result.verdict is Verdict.INCONCLUSIVE or any(skip.blocks_verdict for skip in result.skipped):
        return ExitStatus.INCONCLUSIVE
    return ExitStatus.PARITY


def outcome_key(outcome: Finding | Skip) -> bytes:
    """Equal for equal outcomes: evidence holds lists and objects, so that findings have no hash of their own."""
    return type(outcome).__name__.encode() + msgspec.json.encode(outcome, order="deterministic")


def encode_result(result: Result) -> bytes:
    """The document as indented UTF-8 JSON, with a final newline."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


def decode_result(data: bytes, *, path: object) -> Result:
    """A document that a former run wrote.

    Raises:
        InputError: it isn't one, or is of another schema version.
    """
    expected = f"a result of eagle-parity, schema_version {SCHEMA_VERSION}"
    try:
        return msgspec.json.decode(data, type=Result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(path, f"not a result ({error})", expected=expected) from error
