from __future__ import annotations

import os
import re
import stat
import threading
from typing import TYPE_CHECKING

import pytest

from eagle_parity.errors import InputError
from eagle_parity.files import _is_stream, replace_when_written, write_atomically

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_text("old")
    write_atomically(out, b"new", private=True)
    assert out.read_bytes() == b"new"
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    write_atomically(out, b"newer")
    assert stat.S_IMODE(out.stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    real = tmp_path / "deep" / "real.json"
    real.write_text("old")
    link, second = tmp_path / "link", tmp_path / "second"
    link.symlink_to("deep/real.json")
    second.symlink_to(link)
    write_atomically(second, b"new")
    assert (link.is_symlink(), second.is_symlink(), real.is_symlink()) == (True, True, False)
    assert real.read_bytes() == b"new"
    assert [path.name for path in real.parent.iterdir()] == ["real.json"]


def test_a_link_to_nothing_makes_what_it_points_to(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("made.json")
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert (tmp_path / "made.json").read_bytes() == b"new"


def test_a_pipe_gets_the_bytes_and_stays_one(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for name in (pipe, link):
        got: list[bytes] = []
        reader = threading.Thread(target=lambda got=got: got.append(pipe.read_bytes()), daemon=True)
        reader.start()
        write_atomically(name, b"told")
        reader.join(timeout=20)
        assert got == [b"told"]
        assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_stream_that_is_open_already_is_appended_to(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    with summary.open("ab") as stream:
        inode = summary.stat().st_ino
        name = f"/dev/fd/{stream.fileno()}"
        if not os.path.realpath(name).endswith("summary.md"):
            pytest.skip("descriptors have no links to their files here")
        write_atomically(name, b"after\n")
    assert summary.read_text() == "before\nafter\n"
    assert summary.stat().st_ino == inode


@pytest.mark.parametrize("name", ["file", "folder/file"])
def test_a_plain_file_is_no_stream(name: str, tmp_path: Path) -> None:
    assert not _is_stream(tmp_path / name)


@pytest.mark.parametrize("name", ["no/out.json", ".", "circle", "a\0b", "file/below", "x" * 300])
def test_what_cant_be_written_is_told(name: str, tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "file").touch()
    path = f"{tmp_path}/{name}"
    with pytest.raises(InputError, match=re.escape(path) + ": can't be written"):
        write_atomically(path, b"x")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["circle", "file"]


def test_a_long_name_that_is_allowed_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    write_atomically(path, b"x")
    assert path.read_bytes() == b"x"


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("old")

    def interrupted() -> None:
        with replace_when_written(out) as temporary:
            assert temporary != str(out)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
