"""One battery for everything that is accumulated: the order of updates, and merges of parts against one pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from builders import Written
from hypothesis import given, settings
from hypothesis import strategies as st
from states_in_memory import in_memory

from eagle_parity.comparison.accumulator import Accumulator
from eagle_parity.comparison.alignment import BLOCK_ROWS, Aligner, Lost, boundary_candidate
from eagle_parity.comparison.block_numbers import add_block, count_rows, neighbour_errors
from eagle_parity.comparison.pairing import PrefixIndex, pair_sequences, read_ids
from eagle_parity.comparison.slot_pair import ERRORS, SINKS, SlotPair
from eagle_parity.comparison.state_match import CONTRASTS, REPEATS, StateMatch
from eagle_parity.numerics.arithmetic import Pairs
from eagle_parity.numerics.histogram import ErrorHistograms
from eagle_parity.numerics.moments import PairMoments
from eagle_parity.numerics.rows import token_neighbours
from eagle_parity.numerics.whole_arrays import WholeArrays

if TYPE_CHECKING:
    from collections.abc import Callable

    from eagle_parity.comparison.alignment import AlignedPair

WAY = WholeArrays()
WIDTH = 4
KNOWN = (boundary_candidate(3), boundary_candidate(4))


@dataclass(frozen=True)
class Part:
    """One sequence: its name, and what each side and each candidate holds."""

    name: str
    x: torch.Tensor
    y: torch.Tensor
    ids: torch.Tensor


@dataclass(frozen=True)
class Case:
    """A kind of state: how an empty one is made, updated with a part, and turned into plain numbers."""

    start: Callable[[], Any]
    update: Callable[[Any, Part], object]
    numbers: Callable[[Any], Any]


def update_match(state: StateMatch, part: Part) -> None:
    keep = torch.ones(len(part.ids), dtype=torch.bool)
    pairs = Pairs(((0, 1), (0, 2)))
    numbers = WAY.compare([[part.y, part.x, part.x + 1]], pairs)
    targets = state.targets(pairs, 0, {KNOWN[0].label: 1, KNOWN[1].label: 2})
    count_rows(WAY, numbers.errors_RT, targets, keep)
    state.rows += len(keep)
    first, second, same = token_neighbours(part.ids, torch.zeros_like(part.ids))
    errors = neighbour_errors(WAY, [part.y], numbers.squares_NT[:1], first, second)
    count_rows(WAY, errors, [(0, state.histograms.counts_PB[REPEATS])], same)
    count_rows(WAY, errors, [(0, state.histograms.counts_PB[CONTRASTS])], ~same)


def update_pair(state: SlotPair, part: Part) -> None:
    sinks = torch.arange(len(part.ids)) == 0
    numbers = WAY.compare([[part.x, part.y]], Pairs(subtracted=((1, 0),)))
    x_squares, y_squares = numbers.squares_NT
    add_block(WAY, state.moments, (part.x, part.y), (x_squares, y_squares), ~sinks)
    for place, keep in ((ERRORS, ~sinks), (SINKS, sinks)):
        count_rows(WAY, numbers.errors_RT, [(0, state.histograms.counts_PB[place])], keep)
    state.tell_sequence(part.name, float(numbers.errors_RT[0, ~sinks].median()), bad=False)


def aligned(part: Part) -> AlignedPair:
    trained = in_memory([Written(part.ids, [part.x, part.x * 2], last_state=part.x * 3)], names=[part.name])
    live = in_memory([Written(part.ids, [part.y, part.y * 2], last_state=part.y * 3)], names=[part.name])
    reference = in_memory([Written(part.ids, [part.x, part.x + 1])], names=[part.name])
    pairs = pair_sequences(trained, live).pairs
    aligner = Aligner(
        trained=trained,
        live=live,
        reference=reference,
        reference_index=PrefixIndex(read_ids(reference)[0]),
        reference_boundaries=(3, 4),
        noise=live,
        noise_index=PrefixIndex(read_ids(live)[0]),
        embedding=None,
    )
    pair = aligner.align(pairs[0])
    assert not isinstance(pair, Lost)
    return pair


def start_accumulator() -> Accumulator:
    empty = torch.zeros(1, WIDTH)
    side = in_memory([Written(torch.zeros(1, dtype=torch.int64), [empty, empty], last_state=empty)])
    return Accumulator(side, side, KNOWN, bad_row_distance=0.15)


CASES = {
    "PairMoments": Case(
        lambda: PairMoments(WIDTH),
        lambda state, part: state.update(part.x, part.y),
        lambda state: state.compute(),
    ),
    "ErrorHistograms": Case(
        lambda: ErrorHistograms(1),
        lambda state, part: state.update((part.x - part.y).norm(dim=1)[None]),
        lambda state: (state.quantiles(0), state.survival(0)),
    ),
    "StateMatch": Case(lambda: StateMatch.start(KNOWN, "float32"), update_match, lambda state: state.compute()),
    "SlotPair": Case(lambda: SlotPair(PairMoments(WIDTH)), update_pair, lambda state: state.compute()),
    "Accumulator": Case(
        start_accumulator,
        lambda state, part: state.update([aligned(part)]),
        lambda state: (state.tokens, state.slots(), state.trained_last.compute(), state.live_last.compute()),
    ),
}


def plain(value: Any) -> Any:
    """Nested lists of numbers and words, for ``approx``."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if hasattr(value, "__struct_fields__"):
        return [plain(getattr(value, name)) for name in value.__struct_fields__]
    if hasattr(value, "__dataclass_fields__"):
        return [plain(getattr(value, name)) for name in value.__dataclass_fields__]
    return value


def assert_same(one: Any, two: Any, where: str = "") -> None:
    one, two = plain(one), plain(two)
    if isinstance(one, list):
        assert isinstance(two, list), where
        assert len(one) == len(two), where
        for place, (first, second) in enumerate(zip(one, two, strict=True)):
            assert_same(first, second, f"{where}.{place}")
    elif isinstance(one, float):
        assert two == pytest.approx(one, rel=1e-9, abs=1e-9), where
    else:
        assert one == two, where


@st.composite
def parts(draw: st.DrawFn) -> list[Part]:
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    found = []
    for number in range(draw(st.integers(1, 4))):
        tokens = draw(st.integers(2, 30))
        x = torch.randn(tokens, WIDTH, generator=generator)
        x[0] *= draw(st.sampled_from([1, 5_000]))  # a sink
        found.append(
            Part(
                name=f"part {number}",
                x=x,
                y=x + 0.1 * torch.randn(tokens, WIDTH, generator=generator),
                ids=torch.randint(0, 9, (tokens,), generator=generator),
            )
        )
    return found


@pytest.mark.parametrize("name", CASES)
@given(sequences=parts(), cut=st.integers(0, 4), shuffle=st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=15)
def test_order_and_merge_make_no_difference(name: str, sequences: list[Part], cut: int, shuffle: Any) -> None:
    case = CASES[name]
    whole = case.start()
    for part in sequences:
        case.update(whole, part)
    expected = case.numbers(whole)
    mixed = list(sequences)
    shuffle.shuffle(mixed)
    first, second = case.start(), case.start()
    for place, part in enumerate(mixed):
        case.update(first if place < cut else second, part)
    assert_same(expected, case.numbers(case.start().merge(first).merge(second)))
    assert_same(expected, case.numbers(second.merge(first)))


@pytest.mark.parametrize("name", CASES)
def test_merging_nothing_changes_nothing(name: str) -> None:
    case = CASES[name]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, WIDTH, generator=generator)
    state = case.start()
    case.update(state, Part("a", x, x + 1, torch.arange(5)))
    before = plain(case.numbers(state))
    assert_same(before, case.numbers(state.merge(case.start())))


def test_a_long_sequence_is_read_in_blocks() -> None:
    asked: list[int] = []
    x = torch.randn(3 * BLOCK_ROWS + 7, WIDTH)
    part = aligned(Part("long", x, x, torch.arange(len(x))))

    class Watched:
        tokens, hidden_size, dtype = len(x), WIDTH, "float32"

        def read(self, start: int, stop: int) -> torch.Tensor:
            asked.append(stop - start)
            return x[start:stop]

    watched = tuple(replace(rows, rows=Watched()) for rows in part.live)
    state = start_accumulator()
    state.update([replace(part, live=watched)])
    assert state.tokens == len(x)
    assert max(asked) == BLOCK_ROWS
