"""What a report says, in the order in which a person needs it: verdict, wirings, findings, skips, inputs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from eagle_parity.findings import BY_NAME, Severity
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
)
from eagle_parity.reporters.sections import INFORMING, SECTIONS
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

MOST_CONFIDENT = 0.99
"""What is measured is never told as certain, although it may round to 1."""


def document(result: Result, *, quiet: bool = False) -> Document:
    """The whole report.

    Args:
        result: what to tell.
        quiet: only verdict and findings; skipped checks are still named, without their reasons.
    """
    content: list[Block] = []
    informs = result.command in INFORMING
    if not quiet:
        content.extend(_parts(result))
        if has_wirings(result.wiring):
            content.append(wirings_table(result.wiring, result.findings))
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
        codes = list(dict.fromkeys(f.code for f in result.findings))
        content.append(Paragraph(f"More on a finding: `eagle-parity explain {codes[0]}`", Tone.MUTED))
    return Document(_headline(result), tuple(content))


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
        worst = result.findings[0]
        names = list(dict.fromkeys(f.name for f in result.findings if f.severity is worst.severity))
        kind = BY_NAME.get(worst.name) if len(names) == 1 else None
        return f"{kind.title if kind else ', '.join(names)}{told}."
    if result.verdict is Verdict.INCONCLUSIVE:
        blocking = next((skip for skip in result.skipped if skip.blocks_verdict), None)
        if blocking:
            return f"{blocking.check} couldn't be judged: {blocking.reason.rstrip('.')}{told}."
        return f"Nothing was judged{told}."
    skipped = f"; {_plural(len(result.skipped), 'check')} skipped" if result.skipped else ""
    return f"Parity holds for what was judged{told}{skipped}."


def count_findings(findings: Iterable[Finding]) -> str:
    """``3 errors, 1 warning``; empty where there is none."""
    counts = Counter(finding.severity for finding in findings)
    return ", ".join(_plural(counts[severity], severity.value) for severity in Severity if counts[severity])


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _measurements(result: Result) -> list[Block]:
    section = SECTIONS.get(result.command)
    if section is not None:
        return section(result)
    return blocks("", result.measurements)


def _findings(result: Result, *, quiet: bool) -> Findings:
    sources = _sources(result)
    items = (
        finding_item(f, sources=sources.get(outcome_key(f), ()) if sources else (), evidence=not quiet)
        for f in result.findings
    )
    return Findings("Findings", tuple(items))


def finding_item(finding: Finding, *, sources: Sequence[str] = (), evidence: bool = True) -> FindingItem:
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
        where.append(f"in {', '.join(sources)}")
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
        content.extend(
            wirings_table(part.wiring, part.findings, of=source.path)
            for source, part in named
            if has_wirings(part.wiring)
        )
    return content


def _skipped(skips: Sequence[Skip]) -> Entries:
    return Entries(
        "Skipped",
        tuple(
            Entry(Cell(skip.check, Tone.WARNING if skip.blocks_verdict else Tone.MUTED, code=True), skip.reason)
            for skip in skips
        ),
    )


def _skipped_briefly(skips: Sequence[Skip]) -> Paragraph:
    return Paragraph(f"Skipped: {', '.join(dict.fromkeys(skip.check for skip in skips))}", Tone.MUTED)


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
