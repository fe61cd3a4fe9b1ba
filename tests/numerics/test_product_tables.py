"""Every product that is asked for is in one table, in one place."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from eagle_parity.numerics.product_tables import arrange

DTYPES = (torch.bfloat16, torch.float32)
RIGHTS, LEFTS = 2, 4


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[torch.dtype]]:
    states = draw(st.integers(1, 20))
    dtypes = draw(st.lists(st.sampled_from(DTYPES), min_size=states, max_size=states))
    places = st.integers(0, states - 1)
    return draw(st.lists(st.tuples(places, places), max_size=40)), dtypes


@given(layout=layouts())
def test_each_pair_is_in_one_place(layout: tuple[list[tuple[int, int]], list[torch.dtype]]) -> None:
    pairs, dtypes = layout
    tables = arrange(pairs, dtypes, RIGHTS, LEFTS)
    found = []
    for rights, lefts, outs in zip(tables.rights_2K.T, tables.lefts_4K.T, tables.outs_8K.T, strict=True):
        # One loop takes both right ones: it reads them from the tiles, or as one dtype from where they lie.
        assert len({"staged" if tables.staged_N[right] else dtypes[right] for right in rights}) == 1
        for place, out in enumerate(outs):
            if out < len(pairs):
                right, left = int(rights[place // LEFTS]), int(lefts[place % LEFTS])
                assert {right, left} == set(pairs[out])
                assert tables.staged_N[left]
                found.append(int(out))
    assert sorted(found) == list(range(len(pairs)))
    assert tables.products_2P.T.tolist() == [list(pair) for pair in pairs]


@given(layout=layouts())
def test_squares_come_from_a_table_that_has_them(layout: tuple[list[tuple[int, int]], list[torch.dtype]]) -> None:
    pairs, dtypes = layout
    tables = arrange(pairs, dtypes, RIGHTS, LEFTS)
    for state, table in enumerate(tables.squared_by_N):
        if table >= 0:
            assert state in tables.rights_2K[:, table]
            assert tables.lefts_4K[-1, table] == len(dtypes)
            assert not tables.staged_N[state]


def test_three_slots_a_side_against_many_boundaries_leave_no_product_over() -> None:
    """Two tables of three subjects for each two boundaries, the first of which squares the boundaries as well."""
    pairs = [(subject, boundary) for subject in range(6) for boundary in range(6, 68)]
    tables = arrange(pairs, [torch.bfloat16] * 68, RIGHTS, LEFTS)
    assert tables.rights_2K.shape == (RIGHTS, 62)
    assert (tables.lefts_4K[-1] == 68).all()
    assert (tables.squared_by_N[:6] == -1).all()
    assert sorted(tables.squared_by_N[6:].tolist()) == sorted([*range(0, 62, 2)] * 2)


def test_three_slots_a_side_are_three_tables() -> None:
    """What the commonest comparison asks for: 16 products, of which a table has eight at most."""
    pairs = [(1, 0), (2, 0), (2, 1), (6, 0), (6, 1), (6, 2), (7, 6)]
    pairs += [(3 + live, trained) for live in range(3) for trained in (0, 1, 2, 6) if trained != live]
    assert arrange(pairs, [torch.bfloat16] * 8, RIGHTS, LEFTS).rights_2K.shape == (RIGHTS, 3)
