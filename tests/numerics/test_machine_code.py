"""The compiled loops: kept as machine code, and linked where that is there."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from eagle_parity.numerics import machine_code
from eagle_parity.numerics.machine_code import FOLDER_ENV, NAMES, Loops

if TYPE_CHECKING:
    from pathlib import Path

USE = """
import sys, torch
from eagle_parity.numerics.compiled import Compiled
from eagle_parity.numerics.histogram import ErrorHistograms
print(ErrorHistograms(1).update(torch.ones(1, 4).double(), None, Compiled()).counts_PB.sum().item())
print("numba" in sys.modules)
"""


@pytest.fixture(scope="module")
def code() -> bytes:
    """As it is kept after the loops have been loaded once."""
    machine_code.load()
    name = f"loops-{machine_code._key()}.o"
    found = [machine_code._kept(folder / name) for folder in machine_code.folders()]
    return next(each for each in found if each is not None)


@pytest.fixture
def kept(code: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in a folder of its own, which is the only one."""
    path = tmp_path / "kept" / f"loops-{machine_code._key()}.o"
    machine_code._keep(path, code)
    monkeypatch.setattr(machine_code, "folders", lambda: iter([path.parent]))
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
    return machine_code._load.__wrapped__()


def works(loops: Loops) -> bool:
    """Whether a loop counts."""
    counts = np.zeros(2, np.int64)
    bins = np.zeros(1 << 17, np.int32)
    errors, edges = np.array([[1.0, 3.0, np.nan]]), np.array([2.0])
    addresses = np.array([counts.ctypes.data], np.uint64)
    bins[int(np.float64(2).view(np.uint64) >> np.uint64(46)) + 1 :] = 1
    loops.count_errors(errors, np.zeros(1, np.int64), np.ones(3, np.bool_), edges, bins, addresses)
    return counts.tolist() == [1, 1]


def test_what_is_kept_is_linked_without_numba(kept: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", USE],
        env=os.environ | {FOLDER_ENV: str(kept.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["4", "False"]


def test_nothing_is_compiled_again(kept: Path, compiled: list[bytes]) -> None:
    before = kept.stat()
    assert works(load())
    assert not compiled
    assert kept.stat() == before


@pytest.mark.parametrize("harm", ["short", "flipped", "empty", "other", "gone", "no object"])
def test_what_is_damaged_is_compiled_anew(kept: Path, compiled: list[bytes], harm: str) -> None:
    whole = kept.read_bytes()
    if harm == "gone":
        kept.unlink()
    elif harm == "no object":
        machine_code._keep(kept, b"no object at all")
    else:
        flipped = bytes([whole[-1] ^ 1])
        kept.write_bytes({"short": whole[:-1], "flipped": whole[:-1] + flipped, "empty": b"", "other": b"x" * 99}[harm])
    assert works(load())
    assert len(compiled) == 1
    assert kept.read_bytes() == whole
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


def test_what_others_may_have_put_there_is_not_run(
    kept: Path, compiled: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = kept.stat().st_uid
    assert owner in (machine_code.trusted_owners() or {owner})
    monkeypatch.setattr(machine_code, "trusted_owners", lambda: {owner + 1})
    assert works(load())
    assert len(compiled) == 1


def test_it_may_be_kept_nowhere(compiled: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a read-only disk without a home."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(machine_code, "folders", lambda: iter([tmp_path / "file" / "folder"]))
    assert works(load())
    assert works(load())
    assert len(compiled) == 2


def test_the_next_folder_is_taken(
    compiled: list[bytes], code: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(machine_code, "folders", lambda: iter([tmp_path / "file", tmp_path / "a" / "b"]))
    load()
    load()
    assert compiled == [code]


def test_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(FOLDER_ENV, str(tmp_path / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    named, beside, user = machine_code.folders()
    assert named == tmp_path / "named"
    assert beside.name == "__pycache__"
    assert user == tmp_path / "cache" / "eagle-parity"


def test_another_processor_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine_code._key()
    monkeypatch.setattr(machine_code, "_processor", lambda: ("other", "+none"))
    assert machine_code._key() != here


def test_arrays_with_gaps_are_refused() -> None:
    with pytest.raises(ValueError, match="without gaps"):
        machine_code.load().count_errors(np.zeros((2, 4))[:, ::2])


def test_compiling() -> None:
    """From nothing, in a process of its own: the code that everything else here links."""
    nowhere = "from eagle_parity.numerics import machine_code\nmachine_code.folders = lambda: iter(())\n"
    ran = subprocess.run(
        [sys.executable, "-c", nowhere + USE],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["4", "True"]
    assert all(callable(getattr(machine_code.load(), name)) for name in NAMES)
