"""What a report says, in the order in which a person needs it: verdict, wirings, findings, skips, inputs.

However much a result holds, a person is told a bounded part of it, the gravest first, and how much more there is; the
JSON format has it all.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from eagle_parity.findings import BY_NAME, Severity
from eagle_parity.quoting import plain
from eagle_parity.reporters.document import (
    Block,
    Cell,
    Document,
    Entries,
    Entry,
    FindingItem,
    Findings,
    Headline,
    Paragraph,
    Table,
    Tone,
    rest,
)
from eagle_parity.reporters.sections import INFORMING, PASSING, section_of
from eagle_parity.reporters.values import blocks, pairs
from eagle_parity.reporters.wirings import has_wirings, wirings_table
from eagle_parity.results import Verdict, outcome_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eagle_parity.findings import Finding
    from eagle_parity.results import Input, Result, Skip

SEVERITY_TONES = {Severity.ERROR: Tone.BAD, Severity.WARNING: Tone.WARNING, Severity.NOTE: Tone.NOTE}
VERDICT_TONES = {Verdict.PASS: Tone.GOOD, Verdict.FAIL: Tone.BAD, Verdict.INCONCLUSIVE: Tone.WARNING}

REPORT = "report"

MAX_FINDINGS = 50
"""Findings that are told one by one: whoever reads so many has understood, or needs a program."""

MAX_OF_A_KIND = 10
"""Of them, where not all can be told: the thousandth finding of one code must not hide the first of another."""

MAX_ALIKE = 3
"""Examples of findings that differ by their file only; the others are counted."""

MAX_NAMES = 8
"""Files that are named where findings are counted."""

MAX_ROWS = 200
"""Rows of a table or list, such as the results of a report; more than any of our own tables has."""

MAX_BLOCKS = 40
"""Tables of one kind, such as the wirings of each result or what each inspected path is."""

MAX_SERVED = 60
"""Engine variants side by side; nobody serves with so many."""

FILE_KEYS = ("file", "path")
"""Where the evidence names the one file that a finding is about."""

_OF_THE_FILE = frozenset({*FILE_KEYS, "reason"})

MOST_CONFIDENT = 0.99
"""What is measured is never told as certain, although it may round to 1."""


def document(result: Result, *, quiet: bool = False) -> Document:
    """The whole report.

    Args:
        result: what to tell.
        quiet: only verdict and findings, or what a command tells that judges nothing; skipped checks are still named,
            without their reasons.
    """
    content: list[Block] = []
    informs = result.command in INFORMING
    if not quiet:
        content.extend(_parts(result))
        if has_wirings(result.wiring):
            content.extend(_wirings(result))
    if informs:
        content.extend(_measurements(result))
    if result.findings:
        content.append(_findings(result, quiet=quiet))
    if not quiet and not informs:
        # Numbers back the findings up; who was answered by these needn't read on.
        content.extend(_measurements(result))
    if result.skipped:
        content.append(_skipped_briefly(result.skipped) if quiet else _skipped(result.skipped))
    if result.inputs and not quiet and result.command != REPORT:
        content.append(inputs_table(result.inputs))
    if result.findings and not quiet:
        code = max(result.findings, key=lambda f: f.severity.rank).code
        content.append(Paragraph(f"More on a finding: `eagle-parity explain {code}`", Tone.MUTED))
    return Document(_headline(result), tuple(map(_bounded, content)))


def _bounded(block: Block) -> Block:
    return block.bounded(MAX_ROWS) if isinstance(block, Table | Entries) else block


def _first_blocks(made: list[Block]) -> list[Block]:
    left = len(made) - MAX_BLOCKS
    return made if left <= 0 else [*made[:MAX_BLOCKS], Paragraph(rest(left), Tone.MUTED)]


def _headline(result: Result) -> Headline:
    informs = result.command in INFORMING and result.verdict is Verdict.PASS
    return Headline(
        verdict="" if informs else result.verdict.value.upper(),
        tone=Tone.STRONG if informs else VERDICT_TONES[result.verdict],
        command=result.command,
        sentence=INFORMING[result.command] if informs else _sentence(result),
    )


def _sentence(result: Result) -> str:
    counts = count_findings(result.findings)
    told = f" ({counts})" if counts else ""
    if result.verdict is Verdict.FAIL and result.findings:
        worst = max(result.findings, key=lambda f: f.severity.rank)
        names = list(dict.fromkeys(f.name for f in result.findings if f.severity is worst.severity))
        kind = BY_NAME.get(worst.name) if len(names) == 1 else None
        others = ", ..." if len(names) > MAX_NAMES else ""
        return f"{kind.title if kind else ', '.join(names[:MAX_NAMES]) + others}{told}."
    if result.verdict is Verdict.INCONCLUSIVE:
        blocking = next((skip for skip in result.skipped if skip.blocks_verdict), None)
        if blocking:
            return f"{blocking.check} couldn't be judged: {blocking.reason.rstrip('.')}{told}."
        return f"Nothing was judged{told}."
    skipped = f"; {_plural(len(result.skipped), 'check')} skipped" if result.skipped else ""
    passed = PASSING.get(result.command, "Parity holds for what was judged")
    return f"{passed}{told}{skipped}."


def count_findings(findings: Iterable[Finding]) -> str:
    """``3 errors, 1 warning``; empty where there is none."""
    counts = Counter(finding.severity for finding in findings)
    return ", ".join(_plural(counts[severity], severity.value) for severity in Severity if counts[severity])


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _measurements(result: Result) -> list[Block]:
    section = section_of(result.command)
    return _first_blocks(blocks("", result.measurements) if section is None else section(result))


def _findings(result: Result, *, quiet: bool) -> Findings:
    groups: dict[object, list[Finding]] = {}
    for finding in sorted(result.findings, key=lambda f: -f.severity.rank):
        groups.setdefault(_likeness(finding), []).append(finding)
    told: list[tuple[Finding, str]] = []
    left = len(result.findings)
    crowded = sum(min(len(group), MAX_ALIKE) for group in groups.values()) > MAX_FINDINGS
    kinds: Counter[tuple[str, Severity]] = Counter()
    for group in groups.values():
        examples = _examples(group)
        kind = (group[0].code, group[0].severity)
        full = kinds[kind] >= MAX_OF_A_KIND or len(told) + len(examples) > MAX_FINDINGS
        if crowded and told and full:
            continue
        kinds[kind] += len(examples)
        told += [(finding, "") for finding in examples[:-1]]
        told.append((examples[-1], _others(group, examples)))
        left -= len(group)
    sources = _sources(result)
    items = (
        finding_item(
            finding, sources=sources.get(outcome_key(finding), ()) if sources else (), evidence=not quiet, more=more
        )
        for finding, more in told
    )
    return Findings(
        "Findings", tuple(items), more=rest(left, "more finding" if left == 1 else "more findings") if left else ""
    )


def _likeness(finding: Finding) -> object:
    """Equal for findings that differ by their file only, in a value of its own for each other one."""
    if _file_of(finding) is None:
        return id(finding)
    same = {key: value for key, value in finding.evidence.items() if key not in _OF_THE_FILE}
    return outcome_key(msgspec.structs.replace(finding, message="", remedy="", evidence=same))


def _file_of(finding: Finding) -> str | None:
    named = (finding.evidence.get(key) for key in FILE_KEYS)
    return next((file for file in named if isinstance(file, str)), None)


def _examples(group: Sequence[Finding]) -> list[Finding]:
    """A few of a group, with different reasons as far as there are any."""
    if len(group) <= MAX_ALIKE:
        return list(group)
    first = {str(finding.evidence.get("reason")): i for i, finding in reversed(list(enumerate(group)))}
    chosen = sorted(first.values())[:MAX_ALIKE]
    chosen += [i for i in range(len(group)) if i not in chosen][: MAX_ALIKE - len(chosen)]
    return [group[i] for i in sorted(chosen)]


def _others(group: Sequence[Finding], examples: Sequence[Finding]) -> str:
    left = len(group) - len(examples)
    if left == 0:
        return ""
    told = {id(finding) for finding in examples}
    names = islice((plain(_file_of(finding)) for finding in group if id(finding) not in told), MAX_NAMES)
    listed = ", ".join([*names, *(["..."] if left > MAX_NAMES else [])])
    return rest(left, f"more {'file' if left == 1 else 'files'} like these ({listed})")


def finding_item(
    finding: Finding, *, sources: Sequence[str] = (), evidence: bool = True, more: str = ""
) -> FindingItem:
    """A finding as it is told; confidence only where it isn't certain, and evidence only if it is wanted."""
    where: list[str] = []
    if finding.engine is not None:
        where.append(finding.engine)
    if finding.slot is not None:
        where.append(f"slot {finding.slot}")
    if finding.rank is not None:
        where.append(f"rank {finding.rank}")
    if finding.confidence < 1:
        where.append(f"confidence {min(finding.confidence, MOST_CONFIDENT):.2f}")
    if sources:
        named = [*sources[:MAX_NAMES], *(["..."] if len(sources) > MAX_NAMES else [])]
        where.append(f"in {', '.join(named)}")
    return FindingItem(
        severity=finding.severity.value,
        tone=SEVERITY_TONES[finding.severity],
        code=finding.code,
        name=finding.name,
        where=tuple(where),
        message=finding.message,
        evidence=pairs({name: value for name, value in finding.evidence.items() if not _is_nested(value)})
        if evidence
        else (),
        remedy=finding.remedy,
        more=more,
    )


def _is_nested(value: object) -> bool:
    """Objects, and lists of them, are for machines: the tables say the same to people, the JSON format has them."""
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(entry, dict) for entry in value))


def _sources(result: Result) -> dict[bytes, list[str]]:
    """Which of a report's results told which finding; the results and the inputs stand in the same order."""
    told: dict[bytes, list[str]] = {}
    for source, part in zip(result.inputs, result.results or (), strict=False):
        for key in dict.fromkeys(map(outcome_key, part.findings)):
            told.setdefault(key, []).append(source.path)
    return told


def _parts(result: Result) -> list[Block]:
    """The results that a report merges: one row each, and their wirings where they couldn't be merged into one."""
    if not result.results:
        return []
    named = list(zip(result.inputs, result.results, strict=False))
    rows = tuple(
        (
            Cell(source.path),
            Cell(part.command, code=True),
            Cell(part.verdict.value, VERDICT_TONES[part.verdict]),
            Cell(count_findings(part.findings) or "none"),
            Cell(str(len(part.skipped)) if part.skipped else ""),
        )
        for source, part in named
    )
    columns = tuple(Cell(title) for title in ("result", "command", "verdict", "findings", "skipped"))
    content: list[Block] = [Table("Results", columns, rows).without_empty_columns()]
    if not has_wirings(result.wiring):
        known = [(source, part) for source, part in named if has_wirings(part.wiring)]
        for source, part in known[:MAX_BLOCKS]:
            content.extend(_wirings(part, of=source.path))
        if len(known) > MAX_BLOCKS:
            content.append(Paragraph(rest(len(known) - MAX_BLOCKS, "more results with wirings"), Tone.MUTED))
    return content


def _wirings(result: Result, *, of: str = "") -> list[Block]:
    """The wirings of one result side by side."""
    left = len(result.wiring.served) - MAX_SERVED
    shown = msgspec.structs.replace(result.wiring, served=result.wiring.served[:MAX_SERVED])
    table = wirings_table(shown, result.findings, of=of)
    return [table] if left <= 0 else [table, Paragraph(rest(left, "more served wirings"), Tone.MUTED)]


def _skipped(skips: Sequence[Skip]) -> Entries:
    return Entries(
        "Skipped",
        tuple(
            Entry(Cell(skip.check, Tone.WARNING if skip.blocks_verdict else Tone.MUTED, code=True), skip.reason)
            for skip in sorted(skips, key=lambda skip: not skip.blocks_verdict)
        ),
    )


def _skipped_briefly(skips: Sequence[Skip]) -> Paragraph:
    names = list(dict.fromkeys(skip.check for skip in skips))
    more = f", {rest(len(names) - MAX_NAMES)}" if len(names) > MAX_NAMES else ""
    return Paragraph(f"Skipped: {', '.join(names[:MAX_NAMES])}{more}", Tone.MUTED)


def inputs_table(inputs: Sequence[Input]) -> Table:
    """What was read, with the columns that any input fills."""
    columns = tuple(Cell(c) for c in ("role", "path", "format", "sequences", "tokens", "slots", "hidden size"))
    rows = tuple(
        (
            Cell(i.role),
            Cell(i.path),
            Cell(i.format),
            *(Cell("" if n is None else f"{n:,}") for n in (i.sequences, i.tokens, i.slots)),
            Cell("" if i.hidden_size is None else str(i.hidden_size)),
        )
        for i in inputs
    )
    return Table("Inputs", columns, rows).without_empty_columns()
