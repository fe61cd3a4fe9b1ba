from __future__ import annotations

from typing import Any

import pytest
import torch
from builders import Written
from states_in_memory import TensorRows, in_memory

from eagle_parity.comparison.alignment import AlignedPair, AlignedRows, Aligner, Lost
from eagle_parity.comparison.pairing import PrefixIndex, pair_sequences, read_ids
from eagle_parity.hidden_states import HiddenStates, Unreadable

IDS = torch.arange(1, 101)
STATE = torch.arange(100.0)[:, None] + torch.tensor([[1.0, 1000.0, 0.5]])
"""Row t begins with t + 1."""


def side(first: int = 0, last: int = 100, *, ids: torch.Tensor = IDS, noise: float = 0) -> HiddenStates:
    rows = STATE[first:last] + noise
    return in_memory([Written(ids, [rows, rows * 2])])


def align(trained: HiddenStates, live: HiddenStates, **more: Any) -> AlignedPair | Lost:
    reference, noise = more.get("reference"), more.get("noise")
    aligner = Aligner(
        trained=trained,
        live=live,
        reference=reference,
        reference_index=PrefixIndex(read_ids(reference)[0]) if reference else None,
        reference_boundaries=(3, 16),
        noise=noise,
        noise_index=PrefixIndex(read_ids(noise)[0]) if noise else None,
        embedding=None,
    )
    (pair,) = pair_sequences(trained, live).pairs
    return aligner.align(pair)


def rows_of(pair: AlignedPair | Lost) -> tuple[list[float], list[float]]:
    assert isinstance(pair, AlignedPair)
    assert pair.token_ids.shape == (pair.length,)
    both = [rows[0].read(0, pair.length)[:, 0] for rows in (pair.trained, pair.live)]
    assert (both[0] == pair.token_ids).all()  # row t belongs to token t + 1
    return both[0].tolist(), both[1].tolist()


@pytest.mark.parametrize(("first", "last"), [(0, 100), (20, 100), (0, 70), (99, 100), (0, 1)])
@pytest.mark.parametrize("lost_on", ["trained", "live"])
def test_rows_lost_at_either_end_of_either_side(first: int, last: int, lost_on: str) -> None:
    sides = {"trained": side(), "live": side(noise=0.01), lost_on: side(first, last)}
    pair = align(sides["trained"], sides["live"])
    one, two = rows_of(pair)
    assert two == pytest.approx(one, abs=0.02)
    assert len(one) == last - first
    assert isinstance(pair, AlignedPair)
    lost = 100 - (last - first)
    assert pair.missing == (f"the {lost_on} side has {last - first} rows for 100 tokens" if lost else None)


def test_rows_lost_at_different_ends_of_both_sides() -> None:
    one, two = rows_of(align(side(20, 100), side(0, 70)))
    assert one == two == [float(t) for t in range(21, 71)]


def test_no_row_in_common_is_told() -> None:
    empty = in_memory([Written(IDS, [STATE[:0], STATE[:0]])])
    found = align(side(), empty)
    assert found == Lost("live", Unreadable("data_0.pt", "no row of it is among those of the trained side"))


def test_the_reference_covers_what_it_shares_and_nothing_else() -> None:
    other = torch.cat([IDS[:60], torch.arange(900, 940)])
    pair = align(side(), side(), reference=side(ids=other))
    assert isinstance(pair, AlignedPair)
    assert pair.with_reference
    candidate, rows = pair.known[0]
    assert candidate.boundary == 3
    read = rows.read(0, 100)
    assert torch.equal(read[:60], STATE[:60])
    assert read[60:].isnan().all()  # other tokens: no rows


def test_a_reference_that_shares_a_templates_first_words_covers_nothing() -> None:
    other = torch.cat([IDS[:5], torch.arange(900, 995)])
    pair = align(side(), side(), reference=side(ids=other))
    assert isinstance(pair, AlignedPair)
    assert not pair.with_reference
    assert pair.known == ()


def test_noise_of_a_longer_capture() -> None:
    pair = align(side(), side(20, 100), noise=side(noise=0.25))
    assert isinstance(pair, AlignedPair)
    assert torch.equal(pair.noise[0].read(0, 5), STATE[20:25] + 0.25)


def test_what_became_unreadable_is_told() -> None:
    trained, live = side(), side()
    (pair,) = pair_sequences(trained, live).pairs
    gone = HiddenStates(
        path=live.path, layout=live.layout, names=live.names, opener=lambda name: Unreadable(name, "gone")
    )
    aligner = Aligner(
        trained=trained,
        live=gone,
        reference=None,
        reference_index=None,
        reference_boundaries=(),
        noise=None,
        noise_index=None,
        embedding=None,
    )
    assert aligner.align(pair) == Lost("live", Unreadable("data_0.pt", "gone"))


def test_rows_outside_the_state_are_nan() -> None:
    rows = AlignedRows(TensorRows(torch.ones(4, 2)), -2)
    read = rows.read(0, 8)
    assert read.isnan().all(1).tolist() == [True, True, False, False, False, False, True, True]
    assert AlignedRows(TensorRows(torch.ones(4, 2)), 10).read(0, 3).isnan().all()


def test_a_side_that_ends_before_the_other_begins() -> None:
    """Which end the rows were lost at can't be seen where one choice leaves no row in common."""
    assert isinstance(align(side(0, 30), side(0, 40, ids=IDS[:40])), AlignedPair)


def test_token_ids_that_changed_since_sequences_were_paired() -> None:
    trained, live = side(), side(noise=0.01)
    (pair,) = pair_sequences(trained, live).pairs
    aligner = Aligner(
        trained=trained,
        live=side(ids=IDS + 1),
        reference=None,
        reference_index=None,
        reference_boundaries=(),
        noise=None,
        noise_index=None,
        embedding=None,
    )
    lost = aligner.align(pair)
    assert isinstance(lost, Lost)
    assert (lost.role, lost.file.reason) == ("live", "was written again since its token ids were read")
