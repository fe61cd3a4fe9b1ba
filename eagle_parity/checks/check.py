"""What a check is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from eagle_parity.findings import Finding, FindingKind
from eagle_parity.results import Skip

Subject = TypeVar("Subject")
Outcomes: TypeAlias = Iterator[Finding | Skip]


@dataclass(frozen=True, slots=True)
class Check(Generic[Subject]):
    """One question about a subject.

    Attributes:
        name: the question in kebab-case, as ``skipped`` names it.
        question: one line, for ``eagle-parity checks``.
        emits: the findings that it can give.
        needs: what it can't run without, in words.
        run: pure: the subject in, findings and skips out.
    """

    name: str
    question: str
    emits: tuple[FindingKind, ...]
    needs: str
    run: Callable[[Subject], Outcomes]
