"""Are all files of a set of one layout?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from eagle_parity.checks.check import Check, Outcomes
from eagle_parity.findings import MIXED_LAYOUT, Severity

if TYPE_CHECKING:
    from eagle_parity.scan.measurements import SetLayout, SetMeasurements

_WORDS = {
    "format": "layout",
    "slots": "slots",
    "hidden_size": "hidden size",
    "dtype": "dtype",
    "last_state": "last state",
    "declared": "declared wiring",
}


def run(found: SetMeasurements) -> Outcomes:
    """One finding; a warning where nothing but the dtype differs, which any reader takes."""
    if len(found.layouts) <= 1:
        return
    main, *others = found.layouts
    differing = {name for other in others for name in _WORDS if getattr(other, name) != getattr(main, name)}
    told = [f"{other.files:,} files, such as {other.example}, have {_told(other, main)}" for other in others[:_TOLD]]
    more = f"; and {len(others) - _TOLD} more layouts" if len(others) > _TOLD else ""
    more += f"; and {found.other_layouts:,} files of still others" if found.other_layouts else ""
    yield MIXED_LAYOUT.finding(
        f"{main.files:,} files are alike, such as {main.example}; {'; '.join(told)}{more}",
        severity=Severity.WARNING if differing <= {"dtype"} else Severity.ERROR,
        evidence={
            "differ_in": sorted(differing),
            "layouts": [_entry(layout) for layout in found.layouts],
            "files_of_others": found.other_layouts,
        },
    )


_TOLD = 3


def _told(other: SetLayout, main: SetLayout) -> str:
    return ", ".join(
        f"{word} {getattr(other, name)} and not {getattr(main, name)}"
        for name, word in _WORDS.items()
        if getattr(other, name) != getattr(main, name)
    )


def _entry(layout: SetLayout) -> dict[str, Any]:
    entry: dict[str, Any] = msgspec.to_builtins(layout)
    return entry


CHECK = Check(
    name="set-layouts",
    question="Are all files of the set of one layout, one dtype and one number of slots?",
    emits=(MIXED_LAYOUT,),
    needs="a training set",
    run=run,
)
