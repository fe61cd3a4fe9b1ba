from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eagle_parity.errors import UsageError
from eagle_parity.wiring import POST_NORM, Wiring, compare_wirings, parse_boundaries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.wiring import Label


@pytest.mark.parametrize(
    ("expected", "actual", "name", "slots"),
    [
        ((3, 16, 28), (0, 3, 16), "spurious-embedding", (0,)),
        ((3, 16, 28), (0, 3, 16, 28), "spurious-embedding", (0,)),
        ((3, 16, 28), (3, 0, 28), "spurious-embedding", (1,)),
        ((0, 3, 16), (3, 16, 28), "missing-embedding", (0,)),
        ((0, 3, 16), (3, 16, None), "missing-embedding", (0,)),
        ((0, 3, 16), (1, 3, 16), "missing-embedding", (0,)),
        ((3, 16, 28), (3, 16), "slot-count", ()),
        ((3, 16, 28), (16, 28), "slot-count", (0, 1)),
        ((3, 16, 28), (28, 16, 3), "slot-order", (0, 2)),
        ((3, 16, 28), (3, 3, 28), "slot-duplicate", (1,)),
        ((3, 16, 28), (4, 17, 29), "layer-mismatch", (0, 1, 2)),
        ((3, 16, 28), (3, 17, 28), "layer-mismatch", (1,)),
        ((3, 16, 28), (None, 3, 16), "layer-mismatch", (1, 2)),
        ((3, 16, 28), (16, 28, None), "layer-mismatch", (0, 1)),
        ((3, 16, 30), (3, 16, POST_NORM), "layer-mismatch", (2,)),
    ],
)
def test_one_root_cause(
    expected: Sequence[Label], actual: Sequence[Label | None], name: str, slots: tuple[int, ...]
) -> None:
    difference = compare_wirings(expected, actual)
    assert difference is not None
    assert (difference.name, difference.slots) == (name, slots)


@pytest.mark.parametrize("actual", [(3, 16, 28), (3, None, 28), (None, None, None)])
def test_what_is_not_known_is_no_difference(actual: Sequence[Label | None]) -> None:
    assert compare_wirings((3, 16, 28), actual) is None


@pytest.mark.parametrize(
    ("actual", "late", "early"),
    [
        ((0, 3, 16), True, False),
        ((None, 3, 16), True, False),
        ((2, 3, 16), True, False),
        ((16, 28, None), False, True),
        ((16, 28, 30), False, True),
        ((4, 17, 29), False, False),
        ((None, 3, 17), False, False),
    ],
)
def test_features_that_arrive_one_slot_late_or_early(actual: Sequence[Label | None], late: bool, early: bool) -> None:
    difference = compare_wirings((3, 16, 28), actual)
    assert difference is not None
    assert (difference.late_slots, difference.early_slots) == (late, early)


@pytest.mark.parametrize(
    ("actual", "offset"), [((4, 17, 29), 1), ((2, 15, 27), -1), ((4, 17, 28), 1), ((4, 18, 28), None)]
)
def test_the_offset_of_all_slots_that_differ(actual: Sequence[Label], offset: int | None) -> None:
    difference = compare_wirings((3, 16, 28), actual)
    assert difference is not None
    assert difference.offset == offset


def test_lists_from_the_command_line() -> None:
    assert parse_boundaries("3, 16,28") == (3, 16, 28)
    assert parse_boundaries("0-3,post_norm") == (0, 1, 2, 3, POST_NORM)
    assert str(Wiring((3, None, POST_NORM))) == "(3, ?, post_norm)"
    assert not Wiring((3, None)).known


@pytest.mark.parametrize("text", ["", "a", "3,,4", "8-3", "-1", "0-999999999", "4096", ",".join(["0-4095"] * 3), "1.5"])
def test_nonsense_is_refused_before_it_is_expanded(text: str) -> None:
    with pytest.raises(UsageError, match="--x"):
        parse_boundaries(text, option="--x")
