"""States that stay in their files: what a compiled loop reads of them itself, against the same numbers in memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle_parity.comparison.open_files import OpenFiles
from eagle_parity.errors import InputError
from eagle_parity.numerics.arithmetic import Pairs
from eagle_parity.numerics.compiled import Compiled
from eagle_parity.numerics.file_rows import FileRows, rows_at, rows_between
from eagle_parity.numerics.located import locate
from eagle_parity.numerics.moments import PairMoments
from eagle_parity.numerics.whole_arrays import WholeArrays
from eagle_parity.readers.containers.stored_tensor import PlainFile, ScaledRows, StoredRows, StoredTensor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eagle_parity.numerics.file_rows import BlockState

ALL_PAIRS = Pairs(((0, 2), (1, 0), (3, 1), (2, 3)), ((1, 0), (3, 2)))


class Stored(NamedTuple):
    """A packed tensor ``[T, N, D]`` in a file, behind some bytes of something else."""

    path: Path
    packed: torch.Tensor
    start: int

    def rows(self, slot: int) -> StoredRows:
        tokens, slots, hidden = self.packed.shape
        dtype = str(self.packed.dtype).removeprefix("torch.")
        whole = StoredTensor(dtype, (tokens, slots, hidden), (slots * hidden, hidden, 1), self.start)
        return StoredRows(PlainFile(self.path, self.path.stat().st_size), whole.at(1, slot))


def store(path: Path, packed: torch.Tensor, start: int = 0) -> Stored:
    path.write_bytes(b"\x07" * start + packed.contiguous().view(torch.uint8).numpy().tobytes())
    return Stored(path, packed, start)


def held(rows: StoredRows, files: OpenFiles, first: int, stop: int) -> FileRows:
    place = rows.place(first, stop)
    assert place is not None
    descriptor = files.descriptor(place.file)
    dtype = getattr(torch, place.dtype)
    return FileRows(
        descriptor, place.start, place.step, place.shape, dtype, lambda a, b: rows.read(first + a, first + b)
    )


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return Compiled()


@pytest.fixture
def files() -> Iterator[OpenFiles]:
    with OpenFiles() as opened:
        yield opened


def moments(x: torch.Tensor, y: torch.Tensor) -> PairMoments:
    found = PairMoments(x.shape[1])
    found.begin(x, y, torch.arange(len(x)))
    return found


class Case(NamedTuple):
    """Two files of the same tokens, and where what is compared begins in them."""

    tokens: int
    first: int
    width: int
    between: int
    start: int
    dtypes: tuple[torch.dtype, torch.dtype]
    seed: int


CASES = st.builds(
    Case,
    tokens=st.integers(1, 150),
    first=st.integers(0, 20),
    width=st.sampled_from([1, 3, 512, 515, 3000]),
    between=st.sampled_from([0, 1, 30]),
    start=st.integers(0, 70),
    dtypes=st.tuples(*[st.sampled_from([torch.bfloat16, torch.float32])] * 2),
    seed=st.integers(0, 2**31),
)


@given(case=CASES)
@settings(deadline=None, max_examples=60)
def test_the_same_as_in_memory(compiled: Compiled, tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    tokens, first, width, between, start, dtypes, seed = case
    folder = tmp_path_factory.mktemp("rows")
    generator = torch.Generator().manual_seed(seed)
    # One file a side, packed, with other states between the two that are compared; begun at any byte and row.
    sides = [
        store(folder / str(side), torch.randn(first + tokens, between + 2, width, generator=generator).to(dtype), start)
        for side, dtype in enumerate(dtypes)
    ]
    slots = [(side, slot) for side in sides for slot in (0, between + 1)]
    memory: list[BlockState] = [side.packed[first:, slot] for side, slot in slots]
    with OpenFiles() as files:
        in_files: list[BlockState] = [held(side.rows(slot), files, first, first + tokens) for side, slot in slots]
        mixed = [*in_files[:1], *memory[1:3], *in_files[3:]]
        # The trained slots are the first side's, so that pairs by subtraction are of one dtype and of two.
        outcomes = []
        for states in (memory, in_files, mixed):
            begun = moments(rows_between(states[0], 0, 8), rows_between(states[1], 0, 8))
            outcomes.append((compiled.compare(states, ALL_PAIRS, sums=[begun.sums]), begun.sums))
    (expected, expected_sums), *others = outcomes
    for found, sums in others:
        assert torch.equal(found.squares_NT, expected.squares_NT)
        assert torch.equal(found.errors_RT, expected.errors_RT)
        assert found.added == expected.added
        # How many rows are added up in float32 may differ.
        scale_D = expected_sums.sums_6D.abs().amax(0) + expected_sums.sums_6D[2:4].sum(0)
        assert ((sums.sums_6D - expected_sums.sums_6D).abs() <= 1e-6 * scale_D + 1e-12).all()
        assert torch.allclose(sums.largest_D, expected_sums.largest_D, rtol=1e-6)


def test_what_is_read_together(tmp_path: Path, files: OpenFiles) -> None:
    packed = store(tmp_path / "packed", torch.zeros(10, 4, 64, dtype=torch.bfloat16), start=16)
    wide = store(tmp_path / "wide", torch.zeros(10, 70, 64, dtype=torch.bfloat16))
    apart = store(tmp_path / "apart", torch.zeros(10, 1, 64))
    memory = torch.zeros(10, 64)
    states: list[BlockState] = [
        *(held(packed.rows(slot), files, 2, 10) for slot in (1, 3)),
        memory,
        *(held(wide.rows(slot), files, 0, 8) for slot in (69, 0)),
        held(apart.rows(0), files, 0, 8),
    ]
    found = locate(states)
    (one, other), (far, near), (alone,) = found.source_N[[0, 1]], found.source_N[[3, 4]], found.source_N[[5]]
    assert one == other
    assert len({int(one), int(far), int(near), int(alone)}) == 4
    assert found.source_N[2] == -1
    sources = found.sources_5F.T.tolist()
    # Start, step, width and the step in memory: from the first slot to behind the last one, with what lies between.
    assert sources[one][1:] == [16 + (2 * 4 + 1) * 128, 4 * 128, 3 * 128, 4 * 128]
    assert found.addresses[[0, 1]].tolist() == [0, 2 * 128]
    # 66 slots between two are 8 KiB too many: read one by one, and side by side in memory.
    assert sources[far][1:] == [69 * 128, 70 * 128, 128, 128]
    assert sources[near][1:] == [0, 70 * 128, 128, 128]
    assert sources[alone][1:] == [0, 256, 256, 256]


def test_rows_beyond_float32(compiled: Compiled, files: OpenFiles, tmp_path: Path) -> None:
    packed = torch.ones(70, 2, 600)
    packed[50, 0] = 1e20
    stored = store(tmp_path / "huge", packed)
    states: list[BlockState] = [held(stored.rows(slot), files, 0, 70) for slot in (0, 1)]
    found = compiled.compare(states, Pairs(((0, 1),)))
    expected = WholeArrays().compare([packed[:, 0], packed[:, 1]], Pairs(((0, 1),)))
    assert torch.allclose(found.squares_NT, expected.squares_NT, rtol=1e-6)
    assert torch.allclose(found.errors_RT, expected.errors_RT, rtol=1e-6)
    assert torch.equal(rows_at(states[0], torch.tensor([50, 3])), packed[[50, 3], 0])
    assert rows_at(states[0], torch.tensor([], dtype=torch.int64)).shape == (0, 600)


def test_a_file_that_is_cut_short_meanwhile(compiled: Compiled, files: OpenFiles, tmp_path: Path) -> None:
    stored = store(tmp_path / "short.bin", torch.ones(500, 2, 600))
    whole = store(tmp_path / "whole.bin", torch.ones(500, 2, 600))
    states: list[BlockState] = [held(one.rows(0), files, 0, 500) for one in (whole, stored)]
    os.truncate(stored.path, stored.path.stat().st_size // 2)
    with pytest.raises(InputError, match=r"short\.bin: has become shorter while it was read"):
        compiled.compare(states, Pairs(((0, 1),)))


def test_files_that_are_gone_or_shorter_are_not_opened(tmp_path: Path) -> None:
    stored = store(tmp_path / "file", torch.ones(5, 1, 8))
    rows = stored.rows(0)
    os.truncate(stored.path, 100)
    with OpenFiles() as files, pytest.raises(InputError, match="has become shorter"):
        held(rows, files, 0, 5)
    stored.path.unlink()
    with OpenFiles() as files, pytest.raises(InputError, match="can't be read any more"):
        held(rows, files, 0, 5)


def test_each_file_is_opened_once_and_closed(tmp_path: Path) -> None:
    stored = store(tmp_path / "file", torch.ones(5, 3, 8))
    with OpenFiles() as files:
        opened = {held(stored.rows(slot), files, 0, 5).descriptor for slot in range(3)}
        (descriptor,) = opened
        os.fstat(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_what_has_no_place(tmp_path: Path) -> None:
    stored = store(tmp_path / "file", torch.ones(5, 3, 8))
    tensor = stored.rows(0).stored
    source = stored.rows(0).source
    transposed = StoredTensor("float32", (8, 5), (1, 8), 0)
    assert StoredRows(source, transposed).place(0, 5) is None
    assert ScaledRows(source, tensor, StoredTensor("float32", (5,), (1,), 0)).place(0, 5) is None
    place = stored.rows(2).place(1, 4)
    assert place is not None
    assert (place.start, place.step, place.shape, place.dtype) == ((3 + 2) * 8 * 4, 3 * 8 * 4, (3, 8), "float32")
