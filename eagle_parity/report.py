"""Results of several runs as one: findings told once, wirings side by side, one verdict."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from eagle_parity.errors import InputError, UsageError
from eagle_parity.files import is_folder
from eagle_parity.findings import UNREADABLE_SHARD, Finding
from eagle_parity.input_files import read_bounded
from eagle_parity.quoting import evidence_value
from eagle_parity.results import (
    INFORMING_COMMANDS,
    NOTHING_JUDGED,
    FailOn,
    Input,
    LastStates,
    Result,
    ServedWiring,
    Skip,
    Verdict,
    WiringSummary,
    conclude,
    decode_result,
    outcome_key,
)
from eagle_parity.wiring import format_boundaries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eagle_parity.wiring import BoundaryEntry

COMMAND = "report"

MAX_RESULT_BYTES = 256 * 1024 * 1024
"""The largest result there is reason for: a scan of a million shards with a finding each."""

EXPECTED = "results that eagle-parity wrote with --format json"

CONFIG_CHECK = "check-config"

JUDGED = "diff-captures"
"""The command whose results hold the numbers that thresholds apply to."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class SavedResult:
    """A result and the file that it was read from."""

    path: str
    result: Result


def read_results(sources: Sequence[str]) -> tuple[list[SavedResult], list[InputError]]:
    """Reads result files, and all ``*.json`` below folders in order of their names.

    Returns:
        The results, and what can't be read.

    Raises:
        InputError: nothing at all can be read.
    """
    saved: list[SavedResult] = []
    errors: list[InputError] = []
    for path in _files(sources, errors):
        try:
            saved.append(SavedResult(str(path), _read(path)))
        except InputError as error:
            errors.append(error)
    if saved:
        return saved, errors
    if len(errors) == 1:
        raise errors[0]
    found = f"{len(errors)} files, none of them readable; the first: {errors[0].found}" if errors else "no result in it"
    raise InputError(" ".join(sources), found, expected=EXPECTED)


def _files(sources: Sequence[str], errors: list[InputError]) -> Iterator[Path]:
    seen: set[str] = set()
    for source in sources:
        path = Path(source)
        found = sorted(path.rglob("*.json")) if is_folder(path) else [path]
        if not found:
            errors.append(InputError(source, "no *.json in this folder", expected=EXPECTED))
        for file in found:
            real = os.path.realpath(file)  # says nothing of links in a circle; reading the file does
            if real not in seen:
                seen.add(real)
                yield file


def _read(path: Path) -> Result:
    data = read_bounded(path, MAX_RESULT_BYTES, expected=EXPECTED)
    if not data.strip():
        raise InputError(path, "the file is empty", expected=EXPECTED)
    return decode_result(data, path=path)


def merge_results(
    saved: Sequence[SavedResult],
    *,
    errors: Sequence[InputError] = (),
    fail_on: FailOn = FailOn.ERROR,
    extra_skips: Sequence[Skip] = (),
) -> Result:
    """One result over several.

    The verdict is drawn anew from the findings and skips of all, at this call's ``fail_on``. A result that was
    inconclusive keeps the whole from passing. Equal findings and skips are told once; ``results`` holds each as it was,
    in the order of ``inputs``.

    Args:
        saved: what was read; at least one.
        errors: files that couldn't be: a finding each.
        fail_on: the severity from which a finding fails the run.
        extra_skips: what else is to be told.
    """
    outcomes: list[Finding | Skip] = [
        UNREADABLE_SHARD.finding(
            str(error),
            evidence={"file": evidence_value(error.subject), "reason": evidence_value(error.found)},
            remedy=error.remedy or "Write the result again, or leave the file out.",
        )
        for error in errors
    ]
    for part in saved:
        outcomes.extend(part.result.findings)
        outcomes.extend(skip for skip in part.result.skipped if skip.reason != NOTHING_JUDGED)
        outcomes.extend(_open_verdict(part))
    outcomes.extend(extra_skips)
    wiring, contradictions = merge_wirings(saved)
    outcomes.extend(contradictions)
    merged = conclude(
        COMMAND,
        outcomes=_once(outcomes),
        judged=any(_judged_something(part.result) for part in saved),
        fail_on=fail_on,
        inputs=[Input(role="result", path=part.path, format=part.result.command) for part in saved],
        wiring=wiring,
    )
    return msgspec.structs.replace(merged, results=[part.result for part in saved])


def _open_verdict(part: SavedResult) -> Iterator[Skip]:
    """Why a result keeps the whole from passing, where none of its own findings and skips says so."""
    result = part.result
    told = [skip for skip in result.skipped if skip.blocks_verdict and skip.reason != NOTHING_JUDGED]
    if result.verdict is Verdict.INCONCLUSIVE and not told:
        yield Skip(check=result.command, reason=f"{part.path} judged nothing", blocks_verdict=True)
    if result.verdict is Verdict.FAIL and not result.findings:
        yield Skip(check=result.command, reason=f"{part.path} says fail and holds no finding", blocks_verdict=True)
    if result.verdict is Verdict.PASS and result.command not in INFORMING_COMMANDS and not _judged_something(result):
        reason = f"{part.path} says pass and holds nothing that was judged"
        yield Skip(check=result.command, reason=reason, blocks_verdict=True)


def _judged_something(result: Result) -> bool:
    """Whether a result holds what its verdict can rest on: a verdict alone is a claim."""
    pending = [result]  # no recursion: how deep reports hold reports, a file decides
    while pending:
        part = pending.pop()
        if part.command in INFORMING_COMMANDS:
            continue
        if part.findings or part.wiring.served:
            return True
        if part.command == COMMAND:
            pending.extend(part.results or ())
        elif part.measurements and part.command != CONFIG_CHECK:
            # What check-config measures is what it read; what it judges are served wirings.
            return True
    return False


def _once(outcomes: Sequence[Finding | Skip]) -> Iterator[Finding | Skip]:
    seen: set[bytes] = set()
    for outcome in outcomes:
        key = outcome_key(outcome)
        if key not in seen:
            seen.add(key)
            yield outcome


class _Contradiction(Exception):  # noqa: N818  control flow inside this module, no error for a user
    """Two results state different things; the message says which and where."""


def merge_wirings(saved: Sequence[SavedResult]) -> tuple[WiringSummary, list[Skip]]:
    """The wirings of all results in one summary, as far as none contradicts another.

    Boundaries that one result knows and another doesn't complete each other. Results that contradict each other are of
    different drafts, targets or moments: putting them side by side would mislead, so that nothing is merged and the
    contradiction is told.
    """
    wirings = [(part.path, part.result.wiring) for part in saved]
    try:
        summary = WiringSummary(
            num_layers=_agree("number of layers", [(p, w.num_layers) for p, w in wirings], _same),
            trained=_agree("trained wiring", [(p, w.trained) for p, w in wirings], _completed),
            live=_agree("live wiring", [(p, w.live) for p, w in wirings], _completed),
            last_state=LastStates(
                trained=_agree("trained last state", [(p, w.last_state.trained) for p, w in wirings], _same),
                live=_agree("live last state", [(p, w.last_state.live) for p, w in wirings], _same),
            ),
            served=_merge_served(wirings),
        )
    except _Contradiction as contradiction:
        reason = f"the results differ in the {contradiction}"
        return WiringSummary(), [Skip(check="wirings in one table", reason=reason)]
    return summary, []


def _agree(
    what: str, values: Sequence[tuple[str, Value | None]], merge: Callable[[Value, Value], Value | None]
) -> Value | None:
    """The value on which all that state one agree."""
    agreed: Value | None = None
    origin = ""
    for path, value in values:
        if value is None:
            continue
        if agreed is None:
            agreed, origin = value, path
            continue
        merged = merge(agreed, value)
        if merged is None:
            raise _Contradiction(f"{what}: {_told(agreed)} in {origin}, {_told(value)} in {path}")
        agreed = merged
    return agreed


def _told(value: object) -> str:
    return format_boundaries(value) if isinstance(value, list) else str(value)


def _same(first: Value, second: Value) -> Value | None:
    return first if first == second else None


def _completed(first: list[BoundaryEntry], second: list[BoundaryEntry]) -> list[BoundaryEntry] | None:
    if len(first) != len(second) or any(
        a is not None and b is not None and a != b for a, b in zip(first, second, strict=True)
    ):
        return None
    return [b if a is None else a for a, b in zip(first, second, strict=True)]


def _merge_served(wirings: Sequence[tuple[str, WiringSummary]]) -> list[ServedWiring]:
    merged: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[str, ServedWiring]] = {}
    for path, wiring in wirings:
        for served in wiring.served:
            key = (served.engine, tuple(sorted(served.options.items())))
            origin, known = merged.setdefault(key, (path, served))
            if (known.boundaries, known.outcome) != (served.boundaries, served.outcome):
                raise _Contradiction(
                    f"wiring that {served.engine} serves: "
                    f"{_told(known.boundaries)} ({known.outcome.value}) in {origin}, "
                    f"{_told(served.boundaries)} ({served.outcome.value}) in {path}"
                )
    return [served for _, served in merged.values()]


def judge_again(saved: Sequence[SavedResult], assignments: Sequence[str]) -> tuple[list[SavedResult], list[Skip]]:
    """The results with their measurements judged by other thresholds.

    Args:
        saved: what was read.
        assignments: ``NAME=VALUE`` pairs; see ``comparison.thresholds`` for the names.

    Returns:
        The results, and a skip for each that holds nothing that a threshold applies to: its verdict stands as it was.

    Raises:
        UsageError: none of them does, or an assignment is none.
        InputError: a result's measurements aren't as the comparison wrote them.
    """
    from eagle_parity.comparison.judge import rejudge

    judged: list[SavedResult] = []
    skips: list[Skip] = []
    for part in saved:
        if part.result.command == JUDGED and part.result.measurements:
            try:
                judged.append(SavedResult(part.path, rejudge(part.result, assignments)))
            except InputError as error:
                raise InputError(part.path, error.found, expected=error.expected, remedy=error.remedy) from error
            continue
        judged.append(part)
        reason = f"{part.path} is of {part.result.command} and holds no measurements; its verdict stands"
        skips.append(Skip(check="other thresholds", reason=reason))
    if len(skips) == len(saved):
        raise UsageError(f"--threshold: no result of {JUDGED} with measurements among {len(saved)}, nothing to judge")
    return judged, skips
