"""Every product that is asked for is in one table, in one place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eagle_parity.numerics.loops.shapes import LEFTS, RIGHTS
from eagle_parity.numerics.product_tables import arrange


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int]:
    states = draw(st.integers(1, 20))
    places = st.integers(0, states - 1)
    return draw(st.lists(st.tuples(places, places), max_size=40)), states


@given(layout=layouts())
def test_each_pair_is_in_one_place(layout: tuple[list[tuple[int, int]], int]) -> None:
    pairs, states = layout
    tables = arrange(pairs, states)
    found = []
    for rights, lefts, outs in zip(tables.rights_2K.T, tables.lefts_4K.T, tables.outs_9K.T, strict=True):
        of_three = lefts[-1] == states
        assert all(0 <= state < states for state in [*rights, *lefts[:-1]])
        assert of_three or 0 <= lefts[-1] < states
        for place, out in enumerate(outs):
            if out < len(pairs):
                if place == RIGHTS * LEFTS:
                    assert of_three
                    held = set(rights)
                else:
                    assert not (of_three and place % LEFTS == LEFTS - 1)  # a square
                    held = {rights[place // LEFTS], lefts[place % LEFTS]}
                assert held == set(pairs[out])
                found.append(int(out))
    assert sorted(found) == list(range(len(pairs)))
    assert tables.products_2P.T.tolist() == [list(pair) for pair in pairs]


@given(layout=layouts())
def test_squares_come_from_a_table_that_has_them(layout: tuple[list[tuple[int, int]], int]) -> None:
    pairs, states = layout
    tables = arrange(pairs, states)
    for state, table in enumerate(tables.squared_by_N):
        if table >= 0:
            assert state in tables.rights_2K[:, table]
            assert tables.lefts_4K[-1, table] == states


def test_a_pair_that_is_there_twice_needs_no_table_of_its_own() -> None:
    assert arrange([(1, 0), (1, 0)], 2).rights_2K.shape == (RIGHTS, 1)


def test_three_slots_a_side_against_many_boundaries_leave_no_product_over() -> None:
    """Two tables of three subjects for each two boundaries, the first of which squares the boundaries as well."""
    pairs = [(subject, boundary) for subject in range(6) for boundary in range(6, 68)]
    tables = arrange(pairs, 68)
    assert tables.rights_2K.shape == (RIGHTS, 62)
    assert (tables.lefts_4K[-1] == 68).all()
    assert (tables.squared_by_N[:6] == -1).all()
    assert sorted(tables.squared_by_N[6:].tolist()) == sorted([*range(0, 62, 2)] * 2)


def test_three_slots_a_side_are_three_tables() -> None:
    """What the commonest comparison asks for: 16 products, and half of the squares come with them."""
    pairs = [(1, 0), (2, 0), (2, 1), (6, 0), (6, 1), (6, 2), (7, 6)]
    pairs += [(3 + live, trained) for live in range(3) for trained in (0, 1, 2, 6) if trained != live]
    tables = arrange(pairs, 8)
    assert tables.rights_2K.shape == (RIGHTS, 3)
    assert (tables.squared_by_N >= 0).sum() == 4
