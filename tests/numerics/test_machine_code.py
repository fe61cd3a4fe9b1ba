"""The compiled loops: kept as machine code, and linked where that is there."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np
import pytest

from eagle_parity.numerics import kept_code, machine_code
from eagle_parity.numerics.histogram import EDGES
from eagle_parity.numerics.kept_code import FOLDER_ENV, USER_CACHE_ENV

if TYPE_CHECKING:
    from eagle_parity.numerics.machine_code import Loops

USE = """
import sys, torch
from eagle_parity.numerics.arithmetic import Pairs, PairSums
from eagle_parity.numerics.compiled import Compiled
from eagle_parity.numerics.histogram import ErrorHistograms
compiled, ones = Compiled(), torch.ones(5, 600)
print(ErrorHistograms(1).update(ones[:1].double(), None, compiled).counts_PB.sum().item())
found = compiled.compare([[ones, 2 * ones]], Pairs(((0, 1),), ((1, 0),)), sums=[PairSums.zeros(600)])
print(found.errors_RT[:2].sum().item(), found.added[0])
print(compiled.squared_differences([ones], [(0, 0)], torch.arange(5), torch.arange(5)).sum().item())
print("numba" in sys.modules)
"""
NO_OBJECT = b'{"floats": 8, "parameters": {}}\nno object at all'
RIGHT = ["600", "7.5", "5", "0.0"]
"""Of five rows of ones against twos: half of the expected norm, and all of it."""


@pytest.fixture(scope="module")
def code() -> bytes:
    """As it is kept after the loops have been loaded once."""
    machine_code.load()
    name = f"loops-{machine_code._key()}.o"
    found = [kept_code.read(folder / name) for folder in kept_code.folders()]
    assert any(found), "no folder here in which machine code can be kept"
    return next(each for each in found if each is not None)


def only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a folder the only one."""
    monkeypatch.setattr(kept_code, "folders", lambda: iter([path]))


@pytest.fixture
def kept(code: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in a folder of its own, which is the only one."""
    path = tmp_path / "kept" / f"loops-{machine_code._key()}.o"
    assert kept_code.keep(path, code)
    only(path.parent, monkeypatch)
    return path


@pytest.fixture
def compiled(code: bytes, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is compiled meanwhile; without the twenty seconds."""
    done: list[bytes] = []

    def compile_again() -> bytes:
        done.append(code)
        return code

    monkeypatch.setattr(machine_code, "_compile", compile_again)
    return done


def load() -> Loops:
    """As a new process does."""
    return machine_code.load.__wrapped__()


def counting() -> tuple[dict[str, Any], np.ndarray[Any, np.dtype[np.int64]]]:
    """Arguments with which 1, 2, 3 and NaN are counted below and from 2 on, and where."""
    counts = np.zeros(2, np.int64)
    arguments = {
        "errors_PT": np.array([[1.0, 2.0, 3.0, np.nan]]),
        "rows_R": np.zeros(1, np.int64),
        "keep_T": np.ones(4, np.bool_),
        "edges_B": np.array([2.0]),
        "first_bins": np.ones(1, np.int32),
        "counts_R": np.array([counts.ctypes.data], np.uint64),
    }
    return arguments, counts


def works(loops: Loops) -> bool:
    """Whether a loop counts."""
    arguments, counts = counting()
    loops.count_errors(**arguments)
    return bool((counts == np.array([1, 2])).all())


def use(*, before: str = "", **environment: str) -> list[str]:
    """What a process prints that uses all loops."""
    ran = subprocess.run(
        [sys.executable, "-c", before + USE],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not ran.stderr
    return ran.stdout.split()


def test_what_is_kept_is_linked_without_numba(kept: Path) -> None:
    assert use(**{FOLDER_ENV: str(kept.parent)}) == [*RIGHT, "False"]


@pytest.mark.parametrize("others", ["", "import numba\nnumba.njit(lambda x: x)(1)\n"], ids=["alone", "numba in use"])
def test_compiling(others: str) -> None:
    """From nothing: the code that everything else here links. In the second process numba has chosen its vectors."""
    nowhere = "from eagle_parity.numerics import kept_code\nkept_code.folders = lambda: iter(())\n"
    assert use(before=others + nowhere) == [*RIGHT, "True"]


def test_code_for_other_vectors_is_used_and_not_kept(kept: Path, code: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """What numba makes in a process where somebody else has used it before."""
    kept.unlink()
    head, _, image = code.partition(b"\n")
    other = json.dumps(json.loads(head) | {"floats": 4}).encode() + b"\n" + image
    monkeypatch.setattr(machine_code, "_compile", lambda: other)
    assert works(load())
    assert not kept.exists()


def test_nothing_is_compiled_again(kept: Path, compiled: list[bytes]) -> None:
    before = kept.stat()
    assert works(load())
    assert not compiled
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("harm", ["short", "flipped", "empty", "other", "gone", "no object", "no head"])
def test_what_is_damaged_is_compiled_anew(kept: Path, compiled: list[bytes], harm: str) -> None:
    whole = kept.read_bytes()
    if harm == "gone":
        kept.unlink()
    elif harm == "no object":
        kept_code.keep(kept, NO_OBJECT)
    elif harm == "no head":
        kept_code.keep(kept, b"no object at all")
    else:
        flipped = bytes([whole[-1] ^ 1])
        kept.write_bytes({"short": whole[:-1], "flipped": whole[:-1] + flipped, "empty": b"", "other": b"x" * 99}[harm])
    assert works(load())
    assert len(compiled) == 1
    assert kept.read_bytes() == whole
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


def test_what_can_not_be_linked_is_not_kept(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.unlink()
    monkeypatch.setattr(machine_code, "_compile", lambda: NO_OBJECT)
    with pytest.raises(RuntimeError):
        load()
    assert not kept.exists()


class TestWhatOthersMayHavePutThere:
    def test_it_is_not_run(self, kept: Path, compiled: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
        owner = kept.stat().st_uid
        assert owner in kept_code.trusted_owners()
        monkeypatch.setattr(kept_code, "trusted_owners", lambda: {owner + 1})
        assert works(load())
        assert len(compiled) == 1

    def test_where_others_may_write_neither(self, kept: Path, compiled: list[bytes]) -> None:
        assert kept.stat().st_mode & 0o777 == 0o644
        kept.chmod(0o666)
        assert works(load())
        assert len(compiled) == 1

    def test_a_pipe_is_not_waited_for(self, kept: Path, compiled: list[bytes]) -> None:
        kept.unlink()
        os.mkfifo(kept)
        assert works(load())
        assert len(compiled) == 1

    def test_too_much_is_not_read(self, kept: Path, compiled: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kept_code, "MOST_BYTES", kept.stat().st_size - 1)
        assert works(load())
        assert len(compiled) == 1


class TestFolders:
    def test_which(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv(FOLDER_ENV, str(tmp_path / "named"))
        monkeypatch.setenv(USER_CACHE_ENV, str(tmp_path / "cache"))
        named, beside, user = kept_code.folders()
        assert named == tmp_path / "named"
        assert beside.name == "__pycache__"
        assert user == tmp_path / "cache" / "eagle-parity"

    @pytest.mark.parametrize("cache", ["", "relative"])
    def test_without_a_cache_that_is_named(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: str) -> None:
        monkeypatch.delenv(FOLDER_ENV, raising=False)
        monkeypatch.setenv(USER_CACHE_ENV, cache)
        monkeypatch.setenv("HOME", str(tmp_path))
        beside, user = kept_code.folders()
        assert beside.name == "__pycache__"
        assert user == tmp_path / ".cache" / "eagle-parity"

    def test_without_a_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def nowhere() -> Path:
            raise RuntimeError

        monkeypatch.delenv(FOLDER_ENV, raising=False)
        monkeypatch.delenv(USER_CACHE_ENV, raising=False)
        monkeypatch.setattr(Path, "home", nowhere)
        assert len(list(kept_code.folders())) == 1

    def test_none_of_them_will_do(self, compiled: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As on a read-only disk without a home."""
        (tmp_path / "file").touch()
        only(tmp_path / "file" / "folder", monkeypatch)
        assert works(load())
        assert works(load())
        assert len(compiled) == 2

    def test_the_first_that_will_do_is_taken(
        self, compiled: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").touch()
        every = [tmp_path / "file", tmp_path / "a" / "b", tmp_path / "c"]
        monkeypatch.setattr(kept_code, "folders", lambda: iter(every))
        load()
        load()
        assert len(compiled) == 1
        assert len(list(every[1].iterdir())) == 1
        assert not every[2].exists()


class TestKey:
    @pytest.mark.parametrize("part", ["this_processor", "_sources"])
    def test_of_another_processor_or_source(self, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
        here = machine_code._key()
        monkeypatch.setattr(machine_code, part, lambda: ())
        assert machine_code._key() != here

    def test_the_sources_are_the_loops_and_what_compiles_them(self) -> None:
        names = [file.name for file in machine_code._sources()]
        assert {"machine_code.py", "processor.py", "block.py", "shapes.py", "entries.py"} < set(names)

    def test_of_another_system(self, monkeypatch: pytest.MonkeyPatch) -> None:
        here = machine_code._key()
        monkeypatch.setattr(llvm, "get_process_triple", lambda: "other")
        assert machine_code._key() != here

    def test_of_another_llvmlite(self, monkeypatch: pytest.MonkeyPatch) -> None:
        here = machine_code._key()
        monkeypatch.setattr(llvmlite, "__version__", "0")
        assert machine_code._key() != here

    def test_of_another_numba(self, monkeypatch: pytest.MonkeyPatch) -> None:
        here = machine_code._key()
        monkeypatch.setattr(importlib.metadata, "version", lambda _name: "0")
        assert machine_code._key() != here

    @pytest.mark.parametrize("name", ["NUMBA_OPT", "NUMBA_BOUNDSCHECK"])
    def test_of_another_setting(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        """A run for a debugger isn't to make the next ones slow."""
        here = machine_code._key()
        monkeypatch.setenv(name, "0")
        assert machine_code._key() != here

    def test_of_a_file_of_settings(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        here = machine_code._key()
        monkeypatch.chdir(tmp_path)
        assert machine_code._key() == here
        (tmp_path / ".numba_config.yaml").write_text("opt: 0\n")
        assert machine_code._key() != here

    def test_where_it_is_kept_is_no_setting(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        here = machine_code._key()
        monkeypatch.setenv(FOLDER_ENV, str(tmp_path))
        assert machine_code._key() == here


class TestArguments:
    """A loop takes addresses: what is wrong with an argument has to be said before."""

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("errors_PT", np.zeros((2, 4))[:, ::2]),
            ("errors_PT", np.zeros(3)),
            ("edges_B", EDGES.float().numpy()),
            ("rows_R", np.zeros(1, np.int32)),
            ("rows_R", [0]),
        ],
    )
    def test_another_array_is_refused(self, name: str, value: object) -> None:
        arguments, _ = counting()
        with pytest.raises(TypeError, match=f"{name} of count_errors has to be"):
            machine_code.load().count_errors(**(arguments | {name: value}))

    def test_all_are_asked_for(self) -> None:
        arguments, _ = counting()
        del arguments["keep_T"]
        with pytest.raises(TypeError, match="takes errors_PT, rows_R, keep_T, edges_B, first_bins, counts_R"):
            machine_code.load().count_errors(**arguments)

    def test_a_number_is_an_integer(self) -> None:
        rows, floats = np.zeros(0, np.int64), np.zeros((2, 8), np.float32)
        addresses = {"addresses_N": np.zeros(0, np.uint64), "steps_N": np.zeros(0, np.uint64), "codes_N": rows}
        places = {"x_Q": rows, "y_Q": rows, "x_rows_T": rows, "y_rows_T": rows}
        row_distances = machine_code.load().row_distances
        arguments: dict[str, Any] = {**addresses, **places, "wide": floats, "out_QT": np.zeros((0, 0))}
        assert row_distances(**arguments, size=3) == 0
        with pytest.raises(TypeError):
            row_distances(**arguments | {"size": 0.7})
