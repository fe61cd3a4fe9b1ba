"""What can be found and by which check, as data for ``checks``, ``explain`` and the documentation."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from eagle_parity.checks.catalogue import CHECKS
from eagle_parity.errors import UsageError
from eagle_parity.findings import BY_CODE, BY_NAME, DOCS, FINDINGS

if TYPE_CHECKING:
    from eagle_parity.findings import FindingKind


def emitted_by(kind: FindingKind) -> list[str]:
    """The names of the checks that can give a finding."""
    return [check.name for check in CHECKS if kind in check.emits]


def finding_row(kind: FindingKind) -> dict[str, Any]:
    """A finding in one row: code, name, severity, title, the checks that give it."""
    return {
        "code": kind.code,
        "name": kind.name,
        "severity": kind.severity.value,
        "title": kind.title,
        "checks": emitted_by(kind),
    }


def explanation(kind: FindingKind) -> dict[str, Any]:
    """A finding at length."""
    return {**finding_row(kind), "why": kind.why, "remedy": kind.remedy, "docs": f"{DOCS}#{kind.name}"}


def catalogue() -> dict[str, Any]:
    """All findings and all checks."""
    return {
        "findings": [finding_row(kind) for kind in FINDINGS],
        "checks": [
            {
                "name": check.name,
                "question": check.question,
                "needs": check.needs,
                "emits": [kind.name for kind in check.emits],
            }
            for check in CHECKS
        ],
    }


def find_kind(text: str) -> FindingKind:
    """A finding by code or name, whatever the case.

    Raises:
        UsageError: there is none, with the nearest ones.
    """
    kind = BY_CODE.get(text.strip().upper()) or BY_NAME.get(text.strip().lower())
    if kind is not None:
        return kind
    # Codes differ from each other by a digit, so that every code is near every other: only names are suggested for
    # names, and only codes for codes.
    wanted = text.strip()
    known = BY_CODE if wanted.upper().startswith("EP") else BY_NAME
    wanted = wanted.upper() if known is BY_CODE else wanted.lower()
    near = difflib.get_close_matches(wanted, list(known), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "`eagle-parity checks` lists them"
    raise UsageError(f"{text!r} is no finding's code or name; {hint}")
