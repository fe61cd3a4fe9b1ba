"""The numbers of a block, and that a whole comparison says the same whichever way they are computed."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from builders import Written, write_capture, write_stacked
from states_in_memory import in_memory

from eagle_parity.comparison.accumulator import Accumulator, repeats_among
from eagle_parity.comparison.alignment import Aligner, Lost, boundary_candidate
from eagle_parity.comparison.block_numbers import error_row, neighbour_errors
from eagle_parity.comparison.pairing import PrefixIndex, pair_sequences, read_ids
from eagle_parity.numerics.arithmetic import SUBTRACTED_BELOW, Arithmetic, Pairs
from eagle_parity.numerics.compiled import Compiled
from eagle_parity.numerics.file_rows import FileRows
from eagle_parity.numerics.rows import row_errors, token_neighbours
from eagle_parity.numerics.whole_arrays import WholeArrays
from eagle_parity.readers import open_hidden_states

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from eagle_parity.numerics.arithmetic import Compared
    from eagle_parity.numerics.file_rows import BlockState

WAYS = [WholeArrays, Compiled]
BOTH_WAYS = [Pairs(by_products=((0, 1),)), Pairs(subtracted=((0, 1),))]
WIDTH = 96
KNOWN = (boundary_candidate(3), boundary_candidate(4))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [0.0, 1e-6, 1e-3, SUBTRACTED_BELOW, 0.3, 3.0])
def test_errors_of_any_size(way: type[Arithmetic], size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 2000, generator=generator)
    y = x + size * torch.randn(50, 2000, generator=generator)
    by_products, subtracted = (way().compare([[y, x]], pairs).errors_RT[error_row(pairs, 0, 1)] for pairs in BOTH_WAYS)
    assert torch.allclose(by_products, row_errors(y, x), rtol=1e-4, atol=1e-12)
    assert torch.allclose(subtracted, row_errors(y, x), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_zero_and_missing_rows(way: type[Arithmetic]) -> None:
    expected = torch.tensor([[0.0], [0.0], [math.nan], [1.0], [math.nan]])
    rows = torch.tensor([[0.0], [1.0], [1.0], [math.nan], [math.nan]])
    for pairs in BOTH_WAYS:
        numbers = way().compare([[rows, expected]], pairs)
        errors = numbers.errors_RT[error_row(pairs, 0, 1)]
        assert errors[:2].tolist() == [0.0, math.inf]
        assert errors[2:].isnan().all()
        assert numbers.squares_NT.isfinite().tolist() == [
            [True, True, True, False, False],
            [True, True, False, True, False],
        ]


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_one_token(way: type[Arithmetic]) -> None:
    ids = torch.tensor([7, 5, 7, 7, 9])
    table = {5: 1.0, 7: 2.0, 9: 4.0}
    embedding = torch.tensor([[table[int(i)]] for i in ids])
    states = [embedding, embedding + torch.arange(5.0)[:, None]]
    squares = way().compare([states], Pairs()).squares_NT
    first, second, same = token_neighbours(ids, torch.zeros_like(ids))
    errors = neighbour_errors(way(), states, squares, first, second)
    assert errors[0, same].tolist() == [0.0, 0.0]
    assert errors[0, ~same].tolist() == [1.0, 1.0]
    assert errors[1, same].tolist() == pytest.approx([1.0, 0.25])


def measured(arithmetic: Arithmetic, dtype: torch.dtype, folder: Path | None = None) -> list[object]:
    """A comparison of three sequences: a long one, one with sinks and rows that are no numbers, a short one.

    Args:
        arithmetic: how.
        dtype: of the states.
        folder: where they lie as files, one state beside the other or one behind the other; else they are in memory.
    """
    generator = torch.Generator().manual_seed(0)
    trained, live, reference = [], [], []
    for tokens in (900, 300, 5):
        slots = [torch.randn(tokens, WIDTH, generator=generator) for _ in range(3)]
        slots[1] += slots[0]  # neighbouring layers are alike
        noisy = [slot + 0.01 * torch.randn(tokens, WIDTH, generator=generator) for slot in slots]
        ids = torch.randint(0, 40, (tokens,), generator=generator)
        for state in (*slots, *noisy):
            state[0] *= 400
        if tokens == 300:
            noisy[1][7] = math.nan
            noisy[2][250:290] *= 300  # more than can be sinks
        trained.append(Written(ids, [slot.to(dtype) for slot in slots[:2]], last_state=slots[2].to(dtype)))
        live.append(Written(ids, [slot.to(dtype) for slot in (noisy[1], noisy[0])], last_state=noisy[2].to(dtype)))
        reference.append(Written(ids, [slot.to(dtype) for slot in slots[:2]]))
    if folder is None:
        # Named as the files are.
        names = [f"cmpl-{i}-8ea721b1.safetensors" for i in range(len(trained))]
        sides = in_memory(trained, names=names), in_memory(live), in_memory(reference)
    else:
        # The trained side's final state is told from its slots, as an option does.
        first = open_hidden_states(write_stacked(folder / "trained", trained), role="trained")
        sides = (
            first.decide_last_state(stored=True),
            open_hidden_states(write_capture(folder / "live", live, slots=[4, 3], last_state=8), role="live"),
            open_hidden_states(write_capture(folder / "reference", reference, slots=[3, 4]), role="reference"),
        )
    aligner = Aligner(
        trained=sides[0],
        live=sides[1],
        reference=sides[2],
        reference_index=PrefixIndex(read_ids(sides[2])[0]),
        reference_boundaries=(3, 4),
        noise=sides[1],
        noise_index=PrefixIndex(read_ids(sides[1])[0]),
        embedding=None,
    )
    accumulator = Accumulator(sides[0], sides[1], KNOWN, 0.15, arithmetic)
    aligned = [aligner.align(pair) for pair in pair_sequences(sides[0], sides[1]).pairs]
    accumulator.update([pair for pair in aligned if not isinstance(pair, Lost)])
    last = accumulator.trained_last.compute(), accumulator.live_last.compute()
    found: list[object] = msgspec.to_builtins([accumulator.tokens, accumulator.slots(), last])
    return found


def close(one: object, two: object, where: str = "") -> None:
    if isinstance(one, list | tuple):
        assert isinstance(two, list | tuple), where
        assert len(one) == len(two), where
        for place, (first, second) in enumerate(zip(one, two, strict=True)):
            close(first, second, f"{where}.{place}")
    elif isinstance(one, dict):
        assert isinstance(two, dict)
        assert list(one) == list(two), where
        for key in one:
            if key != "errors":  # counts of bins: a row at an edge may be on either side
                close(one[key], two[key], f"{where}.{key}")
    elif isinstance(one, float):
        assert two == pytest.approx(one, rel=0.012), where  # a bin
    else:
        assert one == two, where


@pytest.mark.parametrize("rows", [2048, 256])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_files_say_what_memory_says(
    dtype: torch.dtype, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one block and in several."""
    in_memory_says = measured(Compiled(), dtype)
    monkeypatch.setattr("eagle_parity.numerics.compiled._MOST_ROWS", rows)
    held: Counter[tuple[type, int]] = Counter()
    real = Compiled.compare

    def compare(self: Compiled, pieces: Sequence[Sequence[BlockState]], *more: Any) -> Compared:
        held.update((type(state), len(states)) for states in pieces for state in states)
        return real(self, pieces, *more)

    monkeypatch.setattr(Compiled, "compare", compare)
    close(in_memory_says, measured(Compiled(), dtype, tmp_path))
    # Two slots a side and two of a second capture, two last states, two of the reference: the first 256 rows of all
    # three sequences are in memory, what two of them have more is in files.
    assert held[FileRows, 10] == 10 * {2048: 2, 256: 3 + 1}[rows]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float16])
def test_both_ways_say_the_same(dtype: torch.dtype) -> None:
    exact = measured(WholeArrays(), dtype)
    close(exact, measured(Compiled(), dtype))
    slots = exact[1]
    assert isinstance(slots, list)
    assert slots[0]["pair"]["sink_rows"] >= 3
    assert slots[0]["live"]["non_finite_rows"] == 1
    assert slots[1]["live"]["candidates"][0]["trained_slot"] in {0, None}


def test_first_rows_that_are_looked_at_for_repeats() -> None:
    """All together as many whatever the number of sequences, within what one sequence can tell and has to."""
    assert [repeats_among(sequences) for sequences in (0, 1, 16, 32, 64, 100_000)] == [256, 256, 256, 128, 64, 64]
