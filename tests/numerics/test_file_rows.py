"""States that stay in their files: what a compiled loop reads of them itself, against the same numbers in memory."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle_parity.errors import InputError
from eagle_parity.hidden_states import FilePlace
from eagle_parity.numerics.arithmetic import Pairs, PairSums
from eagle_parity.numerics.block_plan import Plan
from eagle_parity.numerics.compiled import Compiled, why_not_read
from eagle_parity.numerics.file_rows import FileRows, rows_between, sources_of
from eagle_parity.numerics.located import groups_of, locate
from eagle_parity.numerics.moments import PairMoments
from eagle_parity.numerics.stacked_rows import StackedRows
from eagle_parity.numerics.whole_arrays import WholeArrays
from eagle_parity.open_files import OpenFiles
from eagle_parity.readers.containers.stored_tensor import PlainFile, ScaledRows, StoredRows, StoredTensor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eagle_parity.numerics.arithmetic import Arithmetic, Compared
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
    return FileRows(place, files.open(place.path, place.size))


def placed(path: Path, files: OpenFiles, start: int, step: int, shape: tuple[int, int]) -> FileRows:
    """bfloat16 rows anywhere in a file, as a header may have them."""
    size = path.stat().st_size
    return FileRows(FilePlace(path, size, start, step, shape, "bfloat16"), files.open(path, size))


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
            begun = moments(*rows_between(states[:2], 0, 8))
            outcomes.append((compiled.compare([states], ALL_PAIRS, sums=[begun.sums]), begun.sums))
    (expected, expected_sums), *others = outcomes
    for found, sums in others:
        assert torch.equal(found.squares_NT, expected.squares_NT)
        assert torch.equal(found.errors_RT, expected.errors_RT)
        assert found.added == expected.added
        # How many rows are added up in float32 may differ.
        scale_D = expected_sums.sums_6D.abs().amax(0) + expected_sums.sums_6D[2:4].sum(0)
        assert ((sums.sums_6D - expected_sums.sums_6D).abs() <= 1e-6 * scale_D + 1e-12).all()
        assert torch.allclose(sums.largest_D, expected_sums.largest_D, rtol=1e-6)


@pytest.mark.parametrize(("others", "at_once"), [(8, 12), (40, 4)])
def test_states_beside_those_that_are_subtracted(
    compiled: Compiled, files: OpenFiles, tmp_path: Path, others: int, at_once: int
) -> None:
    """These are read 32 rows at once, the others fewer: a number that divides 32, or doesn't, or the rows there are."""
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(71, slots, 4096, generator=generator).bfloat16() for slots in (1, others, 1)]
    stored = [store(tmp_path / f"{place}.bin", packed) for place, packed in enumerate(tensors)]
    slots = [(side, slot) for side, packed in zip(stored, tensors, strict=True) for slot in range(packed.shape[1])]
    memory: list[BlockState] = [side.packed[:, slot] for side, slot in slots]
    in_files: list[BlockState] = [held(side.rows(slot), files, 0, 71) for side, slot in slots]
    last = others + 1
    (group,) = groups_of([locate(in_files)])
    plan = Plan.of(group, 71, 4096, {0, last})
    assert (plan.at_once, plan.others_at_once, plan.kept_F.tolist()) == (32, at_once, [True, False, True])
    pairs = Pairs(tuple((side, other) for side in (0, last) for other in range(1, last)), ((last, 0),))
    outcomes = []
    for states in (memory, in_files):
        begun = moments(*rows_between([states[0], states[last]], 0, 8))
        outcomes.append((compiled.compare([states], pairs, sums=[begun.sums]), begun.sums))
    (expected, expected_sums), (found, sums) = outcomes
    assert torch.equal(found.squares_NT, expected.squares_NT)
    assert torch.equal(found.errors_RT, expected.errors_RT)
    assert found.added == expected.added == [71]
    assert torch.equal(sums.sums_6D, expected_sums.sums_6D)
    assert torch.equal(sums.largest_D, expected_sums.largest_D)


class SomeRows(NamedTuple):
    """Rows of two files: which ones, whether they are in memory instead, and how many states lie between the two."""

    first: int
    stop: int
    in_memory: tuple[bool, bool]
    between: int


SOME_ROWS = st.tuples(
    st.integers(0, 39), st.integers(1, 40), st.tuples(st.booleans(), st.booleans()), st.sampled_from([0, 1, 30])
).map(lambda each: SomeRows(each[0], min(40, each[0] + each[1]), each[2], each[3]))


@given(
    chosen=st.lists(SOME_ROWS, min_size=1, max_size=6),
    dtypes=st.sampled_from([(torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32)]),
)
@settings(deadline=None, max_examples=40)
def test_several_pieces_in_one_call(
    compiled: Compiled,
    tmp_path_factory: pytest.TempPathFactory,
    chosen: list[SomeRows],
    dtypes: tuple[torch.dtype, torch.dtype],
) -> None:
    """Of any layouts, and some of them in memory: as each by itself."""
    folder = tmp_path_factory.mktemp("pieces")
    generator = torch.Generator().manual_seed(0)
    stored = {
        between: [
            store(folder / f"{side}-{between}", torch.randn(40, between + 2, 96, generator=generator).to(dtype))
            for side, dtype in enumerate(dtypes)
        ]
        for between in {each.between for each in chosen}
    }
    with OpenFiles() as files:
        pieces: list[list[BlockState]] = []
        memory: list[list[BlockState]] = []
        for first, stop, in_memory, between in chosen:
            slots = [(side, slot, number) for number, side in enumerate(stored[between]) for slot in (0, between + 1)]
            memory.append([side.packed[first:stop, slot] for side, slot, _ in slots])
            pieces.append(
                [
                    rows if in_memory[number] else held(side.rows(slot), files, first, stop)
                    for (side, slot, number), rows in zip(slots, memory[-1], strict=True)
                ]
            )
        sums, expected_sums = (moments(*rows_between(memory[0][:2], 0, 8)).sums for _ in range(2))
        found = compiled.compare(pieces, ALL_PAIRS, sums=[sums])
        each = [compiled.compare([states], ALL_PAIRS, sums=[expected_sums]) for states in memory]
    assert torch.equal(found.squares_NT, torch.cat([one.squares_NT for one in each], dim=1))
    assert torch.equal(found.errors_RT, torch.cat([one.errors_RT for one in each], dim=1))
    assert found.added == [sum(one.added[0] for one in each), *found.added[1:]]
    scale_D = expected_sums.sums_6D.abs().amax(0) + expected_sums.sums_6D[2:4].sum(0)
    assert ((sums.sums_6D - expected_sums.sums_6D).abs() <= 1e-6 * scale_D + 1e-12).all()
    assert torch.equal(sums.largest_D, expected_sums.largest_D)


def test_the_file_of_a_later_piece_is_named(compiled: Compiled, files: OpenFiles, tmp_path: Path) -> None:
    stored = [store(tmp_path / f"{number}.bin", torch.ones(50, 2, 600)) for number in range(4)]
    pieces: list[list[BlockState]] = [[held(one.rows(slot), files, 0, 50) for slot in (0, 1)] for one in stored]
    pieces.insert(0, [torch.ones(50, 600)] * 2)
    os.truncate(stored[2].path, 1000)
    with pytest.raises(InputError, match=r"2\.bin: has become shorter while it was read"):
        compiled.compare(pieces, Pairs(((0, 1),)))


@pytest.mark.parametrize("way", [Compiled, WholeArrays])
@given(
    chosen=st.lists(SOME_ROWS, min_size=1, max_size=6), width=st.sampled_from([32, 33, 1200]), calls=st.integers(1, 3)
)
@settings(deadline=None, max_examples=30)
def test_first_rows_of_several_sequences(
    tmp_path_factory: pytest.TempPathFactory, way: type[Arithmetic], chosen: list[SomeRows], width: int, calls: int
) -> None:
    """One sequence behind the other, whether they were in memory, in files of one layout or of several."""
    folder, arithmetic = tmp_path_factory.mktemp("stacked"), way()
    stored = {
        between: store(folder / str(between), torch.randn(40, between + 2, width).bfloat16(), 3)
        for between in {each.between for each in chosen}
    }
    with StackedRows(sum(each.stop - each.first for each in chosen)) as stacked, OpenFiles() as files:
        pieces: list[list[BlockState]] = [
            [
                stored[each.between].packed[each.first : each.stop, slot]
                if is_held
                else held(stored[each.between].rows(slot), files, each.first, each.stop)
                for is_held, slot in zip(each.in_memory, (0, each.between + 1), strict=True)
            ]
            for each in chosen
        ]
        squares = [arithmetic.read_first(pieces[low : low + calls], stacked) for low in range(0, len(pieces), calls)]
        for number, state in enumerate(stacked.states()):
            expected = torch.cat(
                [stored[each.between].packed[each.first : each.stop, (0, each.between + 1)[number]] for each in chosen]
            )
            assert torch.equal(state, expected)
            squares_T = torch.cat(squares, dim=1)[number]
            assert torch.allclose(squares_T, expected.double().square().sum(1), rtol=1e-6)


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
    together, near, far, alone = sorted(
        sources_of(states), key=lambda source: (-len(source.offsets), source.file.path.name == "apart", source.start)
    )
    # From the first slot to behind the last one, with what lies between; in memory as in the file.
    assert together.offsets == {0: 0, 1: 2 * 128}
    assert (together.start, together.step, together.width, together.pitch) == (16 + 9 * 128, 512, 3 * 128, 512)
    # 68 slots between two are more than two pages: read one by one, and side by side in memory.
    assert (near.offsets, near.start, near.step, near.width, near.pitch) == ({4: 0}, 0, 70 * 128, 128, 128)
    assert (far.offsets, far.start, far.step, far.width, far.pitch) == ({3: 0}, 69 * 128, 70 * 128, 128, 128)
    assert (alone.offsets, alone.start, alone.step, alone.width, alone.pitch) == ({5: 0}, 0, 256, 256, 256)
    found = locate(states)
    assert found.layout.sources[2] == -1
    assert [
        found.sources[place].offsets[number] for number, place in enumerate(found.layout.sources) if place >= 0
    ] == [found.addresses[number] for number in (0, 1, 3, 4, 5)]


@pytest.mark.parametrize(("between", "sources"), [(4096, 1), (4098, 2)])
def test_how_much_between_two_is_read(tmp_path: Path, files: OpenFiles, between: int, sources: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))
    second = 64 + between
    states: list[BlockState] = [placed(path, files, at, 8_400, (10, 32)) for at in (0, second)]
    assert len(sources_of(states)) == sources


HOSTILE = [
    # Start, step, tokens and hidden size of each state: rows that overlap, one row over and over, odd places.
    [(0, 100, 40, 300), (7, 100, 40, 300)],
    [(0, 0, 50, 64), (128, 0, 50, 64)],
    [(3, 128, 20, 32), (3 + 64, 128, 20, 32), (4, 128, 20, 32)],
    [(0, 600, 1, 300), (600, 600, 1, 300)],
    [(0, 600, 0, 300), (600, 600, 0, 300)],
]


@pytest.mark.parametrize("case", HOSTILE)
def test_rows_as_no_writer_has_them(
    compiled: Compiled, tmp_path: Path, files: OpenFiles, case: list[tuple[int, int, int, int]]
) -> None:
    generator = torch.Generator().manual_seed(1)
    content = torch.randn(20_000, generator=generator).bfloat16().view(torch.uint8)
    path = tmp_path / "file"
    path.write_bytes(content.numpy().tobytes())
    states: list[BlockState] = [placed(path, files, at, step, (t, d)) for at, step, t, d in case]
    memory = []
    for at, step, tokens, hidden in case:
        rows = [content[at + row * step :][: 2 * hidden].clone().view(torch.bfloat16) for row in range(tokens)]
        memory.append(torch.stack(rows) if rows else torch.empty((0, hidden), dtype=torch.bfloat16))
    for one, other in zip(rows_between(states, 0, 10**6), memory, strict=True):
        # As bytes: at odd places they may be NaN.
        assert torch.equal(one.contiguous().view(torch.uint8), other.view(torch.uint8))
    pairs = Pairs(((1, 0),), ((0, 1),))
    found, expected = compiled.compare([states], pairs), compiled.compare([memory], pairs)
    assert torch.equal(found.squares_NT.nan_to_num(), expected.squares_NT.nan_to_num())
    assert torch.equal(found.errors_RT.nan_to_num(), expected.errors_RT.nan_to_num())


def test_one_row_may_claim_any_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1000))
    stored = StoredTensor("float32", (1, 64), (2**62, 1), 0)
    place = StoredRows(PlainFile(tmp_path / "file", 1000), stored).place(0, 1)
    assert place is not None
    assert place.step <= 1000


def test_rows_beyond_float32(
    compiled: Compiled, files: OpenFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many of them, done some at a time: as float64 they are more than a block should take."""
    packed = torch.randn(300, 2, 600, generator=torch.Generator().manual_seed(0))
    packed[20:250, 0] *= 1e20
    packed[270, 1] = math.inf
    stored = store(tmp_path / "huge", packed)
    states: list[BlockState] = [held(stored.rows(slot), files, 0, 300) for slot in (0, 1)]
    monkeypatch.setattr("eagle_parity.numerics.compiled._BLOCK_BYTES", 8 * 600 * 2 * 64)
    widest = []
    real = WholeArrays.compare

    def compare(self: WholeArrays, pieces: list[list[torch.Tensor]], *more: Any) -> Compared:
        widest.append(len(pieces[0][0]))
        return real(self, pieces, *more)

    monkeypatch.setattr(WholeArrays, "compare", compare)
    sums, expected_sums = (moments(packed[:8, 0], packed[:8, 1]).sums for _ in range(2))
    pairs = Pairs(((0, 1),), ((1, 0),))
    found = compiled.compare([states], pairs, sums=[sums])
    assert max(widest) <= 64
    expected = real(WholeArrays(), [[packed[:, 0], packed[:, 1]]], pairs, None, [expected_sums])
    assert torch.allclose(found.squares_NT, expected.squares_NT, rtol=1e-6, equal_nan=True)
    assert torch.allclose(found.errors_RT, expected.errors_RT, rtol=1e-6, equal_nan=True)
    assert found.added == expected.added == [299]
    # Those of squares, in which nothing cancels out.
    assert torch.allclose(sums.sums_6D[[2, 3, 5]], expected_sums.sums_6D[[2, 3, 5]], rtol=1e-6)
    assert torch.allclose(sums.largest_D, expected_sums.largest_D, rtol=1e-6)


def test_a_file_that_is_cut_short_meanwhile(compiled: Compiled, files: OpenFiles, tmp_path: Path) -> None:
    stored = store(tmp_path / "short.bin", torch.ones(500, 2, 600))
    whole = store(tmp_path / "whole.bin", torch.ones(500, 2, 600))
    states: list[BlockState] = [held(one.rows(0), files, 0, 500) for one in (whole, stored)]
    os.truncate(stored.path, stored.path.stat().st_size // 2)
    with pytest.raises(InputError, match=r"short\.bin: has become shorter while it was read"):
        compiled.compare([states], Pairs(((0, 1),)))
    sums = PairSums.zeros(600)
    with pytest.raises(InputError, match=r"short\.bin: has become shorter while it was read"):
        compiled.compare([states], Pairs((), ((0, 1),)), sums=[sums])
    assert (sums.sums_6D == 0).all()


def test_a_read_that_fails_once(compiled: Compiled, files: OpenFiles, tmp_path: Path) -> None:
    """What the compiled loop couldn't read and Python can: said of the file, with what to do."""
    stored = store(tmp_path / "file.bin", torch.ones(50, 1, 600))
    state = held(stored.rows(0), files, 0, 50)

    def restore() -> InputError:
        os.truncate(stored.path, 50 * 600 * 4)
        return why_not_read(source, 50)

    (source,) = sources_of([state])
    os.truncate(stored.path, 1000)
    with pytest.raises(InputError, match=r"file\.bin: has become shorter"):
        compiled.compare([[state, torch.ones(50, 600)]], Pairs(((0, 1),)))
    assert "file.bin: a read of it failed, and then it did not; run the command again" in str(restore())


def test_a_file_that_is_replaced_stays_what_it_was(compiled: Compiled, files: OpenFiles, tmp_path: Path) -> None:
    stored = store(tmp_path / "file", torch.full((50, 1, 600), 1e20))
    state = held(stored.rows(0), files, 0, 50)
    store(tmp_path / "other", torch.ones(50, 1, 600))
    (tmp_path / "other").replace(stored.path)
    # Also where rows are read once more.
    assert torch.allclose(compiled.compare([[state]], Pairs()).squares_NT, torch.tensor(600e40, dtype=torch.float64))
    assert float(rows_between([state], 3, 4)[0][0, 0]) == pytest.approx(1e20)


def test_files_that_are_gone_or_shorter_or_no_files(tmp_path: Path) -> None:
    stored = store(tmp_path / "file", torch.ones(5, 1, 8))
    rows = stored.rows(0)
    os.truncate(stored.path, 100)
    with OpenFiles() as files, pytest.raises(InputError, match="has become shorter"):
        held(rows, files, 0, 5)
    stored.path.unlink()
    with OpenFiles() as files, pytest.raises(InputError, match="can't be read any more"):
        held(rows, files, 0, 5)
    os.mkfifo(stored.path)
    with OpenFiles() as files, pytest.raises(InputError, match="is no regular file any more"):
        held(rows, files, 0, 5)


def test_each_file_is_opened_once_and_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (store(tmp_path / name, torch.ones(5, 3, 8)) for name in ("one", "other"))
    closed: list[int] = []
    real = os.close

    def close(descriptor: int) -> None:
        closed.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "close", close)
    missing = other.rows(0)
    other.path.unlink()
    files = OpenFiles()

    def hold_all() -> None:
        with files:
            opened.update(held(one.rows(slot), files, 0, 5).file.descriptor for slot in range(3))
            held(missing, files, 0, 5)

    opened: set[int] = set()
    with pytest.raises(InputError, match="can't be read any more"):
        hold_all()
    assert len(opened) == 1
    assert closed == list(opened)


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
    with pytest.raises(IndexError):
        stored.rows(2).place(1, 6)
