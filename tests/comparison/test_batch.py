"""Sequences that are compared together: which ones, what is open meanwhile, and that it makes no difference."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from builders import Written, write_stacked

from eagle_parity.comparison import batch
from eagle_parity.comparison.accumulator import Accumulator
from eagle_parity.comparison.alignment import AlignedPair, Aligner
from eagle_parity.comparison.batch import batches
from eagle_parity.comparison.pair_states import Places
from eagle_parity.comparison.pairing import pair_sequences
from eagle_parity.errors import InputError
from eagle_parity.numerics.compiled import Compiled
from eagle_parity.numerics.whole_arrays import WholeArrays
from eagle_parity.open_files import OpenFiles, Stamp
from eagle_parity.readers import open_hidden_states

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eagle_parity.hidden_states import HiddenStates
    from eagle_parity.numerics.arithmetic import Arithmetic

WIDTH = 64
SPREAD = 10
"""Of the numbers, about: sums around a mean are as exact as this is great."""
TOKENS = (700, 3, 300, 1, 40, 129, 128, 900, 2, 50)


def written(scale: float, noise: float) -> list[Written]:
    generator = torch.Generator().manual_seed(0)
    found = []
    for number, tokens in enumerate(TOKENS):
        packed = torch.randn(3, tokens, WIDTH, generator=generator) * scale
        packed += noise * torch.randn(3, tokens, WIDTH, generator=torch.Generator().manual_seed(number))
        packed[:, 0] *= 50  # a sink
        if tokens == 129:
            packed[1, 7] = torch.nan
        if tokens == 300:
            packed[:, 20:60] *= 40  # more than can be sinks
        ids = torch.randint(0, 30, (tokens,), generator=torch.Generator().manual_seed(100 + number))
        found.append(Written(ids, list(packed.bfloat16())))
    return found


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[HiddenStates, HiddenStates]:
    folder = tmp_path_factory.mktemp("sides")
    trained, live = (
        open_hidden_states(write_stacked(folder / name, written(1, noise)), role=name).decide_last_state(stored=False)
        for name, noise in (("trained", 0.0), ("live", 0.01))
    )
    return trained, live


def aligner_of(trained: HiddenStates, live: HiddenStates) -> Aligner:
    return Aligner(
        trained=trained,
        live=live,
        reference=None,
        reference_index=None,
        reference_boundaries=(),
        noise=None,
        noise_index=None,
        embedding=None,
    )


def aligned(sides: tuple[HiddenStates, HiddenStates]) -> list[AlignedPair]:
    aligner = aligner_of(*sides)
    found = [aligner.align(pair) for pair in pair_sequences(*sides).pairs]
    pairs = [pair for pair in found if isinstance(pair, AlignedPair)]
    assert len(pairs) == len(found)
    return pairs


def start(sides: tuple[HiddenStates, HiddenStates], way: Arithmetic) -> Accumulator:
    return Accumulator(sides[0], sides[1], (), 0.15, way)


def numbers(accumulator: Accumulator) -> Any:
    return msgspec.to_builtins([accumulator.tokens, accumulator.slots()])


def assert_close(one: Any, two: Any, where: str = "") -> None:
    """Counts, names and quantiles equal; sums to rounding."""
    if isinstance(one, list | tuple):
        assert len(one) == len(two), where
        for place, (first, second) in enumerate(zip(one, two, strict=True)):
            assert_close(first, second, f"{where}.{place}")
    elif isinstance(one, dict):
        assert list(one) == list(two), where
        for key in one:
            assert_close(one[key], two[key], f"{where}.{key}")
    elif isinstance(one, float):
        assert two == pytest.approx(one, rel=1e-6, abs=1e-6 * SPREAD), where
    else:
        assert one == two, where


@pytest.mark.parametrize("way", [WholeArrays, Compiled])
@pytest.mark.parametrize(
    "limits", [(32 * 2**20, 16384, 16), (60_000, 16384, 16), (200_000, 64, 2), (1, 200, 1)], ids=str
)
def test_together_and_one_by_one(
    sides: tuple[HiddenStates, HiddenStates],
    way: type[Arithmetic],
    limits: tuple[int, int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever a batch may have of first rows, a block of rows, and a thread of open files."""
    first_bytes, block_rows, together = limits
    pairs, arithmetic = aligned(sides), way()
    alone = start(sides, arithmetic)
    for pair in pairs:
        alone.update([pair])
    arithmetic.first_bytes = first_bytes
    monkeypatch.setattr("eagle_parity.numerics.compiled._MOST_ROWS", block_rows)
    monkeypatch.setattr("eagle_parity.comparison.batch._TOGETHER", together)
    all_at_once = start(sides, arithmetic)
    all_at_once.update(pairs)
    assert_close(numbers(alone), numbers(all_at_once))
    merged = start(sides, arithmetic)
    for pair in pairs:
        part = start(sides, arithmetic)
        part.update([pair])
        merged.merge(part)
    assert_close(numbers(alone), numbers(merged))
    slot = numbers(alone)[1][0]
    assert slot["pair"]["sequences"] == len(TOKENS)
    assert slot["pair"]["sink_rows"] >= len(TOKENS) - 3
    assert numbers(alone)[1][1]["live"]["non_finite_rows"] == 1


def test_which_ones_are_together(sides: tuple[HiddenStates, HiddenStates]) -> None:
    pairs = aligned(sides)
    places = Places.of(pairs[0], [()] * 3, [()] * 3, (), ())
    other = Places.of(pairs[0], [()] * 3, [()] * 3, (), ())
    row_bytes = 6 * WIDTH * 2

    def lengths(first_bytes: int) -> list[list[int]]:
        found = batches(pairs, lambda pair: other if pair.length == 1 else places, 128, first_bytes)
        return [[pair.length for pair in batch.pairs] for batch in found]

    # One sequence has other states.
    by_kind = [[700, 3, 300], [1], [40, 129, 128, 900, 2, 50]]
    assert lengths(2**25) == by_kind
    assert lengths(260 * row_bytes) == [[700, 3, 300], [1], [40, 129], [128, 900, 2], [50]]


def test_pairs_are_opened_as_they_are_needed(
    sides: tuple[HiddenStates, HiddenStates], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was looked at long before it is read may have changed."""
    pairs = aligned(sides)
    monkeypatch.setattr(WholeArrays, "first_bytes", 1)
    asked: list[int] = []
    most: list[int] = []

    def opening() -> Iterator[AlignedPair]:
        for number, pair in enumerate(pairs):
            asked.append(number)
            yield pair

    state = start(sides, WholeArrays())
    real = state._add

    def add(batch: Any) -> None:
        most.append(len(asked))
        real(batch)

    monkeypatch.setattr(state, "_add", add)
    state.update(opening())
    assert most == [*range(2, len(pairs) + 1), len(pairs)]


@pytest.mark.parametrize("change", ["content", "layout", "cut", "gone"])
def test_a_file_that_changes_between_looking_and_reading(tmp_path: Path, change: str) -> None:
    trained, live = (
        open_hidden_states(write_stacked(tmp_path / name, written(1, 0.0)), role=name).decide_last_state(stored=False)
        for name in ("trained", "live")
    )
    pairs = aligned((trained, live))
    victim = tmp_path / "live" / pairs[2].name
    whole = victim.read_bytes()
    os.utime(victim, ns=(1, 1))
    if change == "gone":
        victim.unlink()
    elif change == "cut":
        os.truncate(victim, len(whole) // 2)
    else:
        new = write_stacked(tmp_path / "new", [*written(2, 0.0)] if change == "content" else [written(2, 0.0)[0]])
        files = sorted(new.iterdir())
        files[min(2, len(files) - 1)].replace(victim)
    state = start((trained, live), Compiled())
    with pytest.raises(InputError, match=victim.name):
        state.update(pairs)


def test_a_stamp_tells_files_apart(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    stamp = Stamp.of(path.stat())
    with OpenFiles() as files:
        files.open(path, 100, stamp)
    (tmp_path / "other").write_bytes(bytes(100))
    os.utime(tmp_path / "other", ns=(stamp.modified_ns + 1, stamp.modified_ns + 1))
    (tmp_path / "other").replace(path)
    with OpenFiles() as files, pytest.raises(InputError, match="was written again since its header was read"):
        files.open(path, 100, stamp)
    with OpenFiles() as files:
        files.open(path, 100)  # nothing is known of what it was


def test_files_are_closed(sides: tuple[HiddenStates, HiddenStates], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: Counter[int] = Counter()
    most = [0]
    real_open, real_close = os.open, os.close

    def counting_open(path: Any, *more: Any, **options: Any) -> int:
        descriptor = real_open(path, *more, **options)
        if str(path).endswith(".safetensors"):
            opened[descriptor] += 1
            most[0] = max(most[0], opened.total())
        return descriptor

    def counting_close(descriptor: int) -> None:
        if opened[descriptor]:
            opened[descriptor] -= 1
        real_close(descriptor)

    pairs = aligned(sides)
    monkeypatch.setattr(os, "open", counting_open)
    monkeypatch.setattr(os, "close", counting_close)
    start(sides, Compiled()).update(pairs)
    assert opened.total() == 0
    assert most[0] == 2 * batch._TOGETHER
