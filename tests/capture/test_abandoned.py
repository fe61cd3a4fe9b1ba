"""What killed clients left in a spool goes, and nothing else does."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from eagle_parity.capture.servers.abandoned import ABANDONED_SECONDS, remove_abandoned
from eagle_parity.capture.spool.folder import make_spool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SESSION = "0123456789ab"
FILES = ("tp0.json", "tp0-000000-aux.safetensors", "dp1.tp3-000012-generated.safetensors", ".part-x_1y2z3a")
OLD = time.time() - ABANDONED_SECONDS - 3600


class Spooled:
    def __init__(self, spool: Path) -> None:
        self.spool, self.token = spool, make_spool(spool)

    def leave(self, session: str = SESSION) -> Path:
        folder = self.spool / session
        folder.mkdir(mode=0o700)
        for name in FILES:
            (folder / name).write_text("x")
        return folder

    def clean(self) -> list[str]:
        """After everything that is there, links too, has become old."""
        for path in [*self.spool.rglob("*"), self.spool]:
            os.utime(path, (OLD, OLD), follow_symlinks=False)
        return remove_abandoned(self.spool, self.token)


@pytest.fixture
def spooled(tmp_path: Path) -> Spooled:
    return Spooled(tmp_path / "spool")


def test_old_sessions_go(spooled: Spooled) -> None:
    spooled.leave()
    (spooled.spool / "ffffffffffff").mkdir()
    assert spooled.clean() == [SESSION, "ffffffffffff"]
    assert [path.name for path in spooled.spool.iterdir()] == ["token"]
    assert spooled.clean() == []


@pytest.mark.parametrize("newest", [*FILES, "."])
def test_a_session_stays_until_its_newest_file_is_old(spooled: Spooled, newest: str) -> None:
    folder = spooled.leave()
    for path in [*folder.iterdir(), folder]:
        os.utime(path, (OLD, OLD))
    late = time.time() - ABANDONED_SECONDS + 3600
    os.utime(folder / newest, (late, late))
    assert remove_abandoned(spooled.spool, spooled.token) == []
    assert len(list(folder.iterdir())) == len(FILES)


@pytest.mark.parametrize("name", ["0123456789a", "0123456789AB", "0123456789abc", "notes", ".0123456789ab"])
def test_what_is_no_session_by_its_name_stays(spooled: Spooled, name: str) -> None:
    folder = spooled.leave(name)
    assert spooled.clean() == []
    assert folder.is_dir()


def put_link(folder: Path) -> None:
    (folder / "tp1.json").symlink_to(folder / "tp0.json")


def put_folder(folder: Path) -> None:
    (folder / "tp1.json").mkdir()


def put_pipe(folder: Path) -> None:
    os.mkfifo(folder / "tp1.json")


def put_file(folder: Path) -> None:
    (folder / "thesis.tex").write_text("x")


@pytest.mark.parametrize("put", [put_link, put_folder, put_pipe, put_file])
def test_a_session_with_anything_else_in_it_stays_whole(spooled: Spooled, put: Callable[[Path], None]) -> None:
    folder = spooled.leave()
    put(folder)
    assert spooled.clean() == []
    assert len(list(folder.iterdir())) == len(FILES) + 1


def test_links_are_not_followed(spooled: Spooled, tmp_path: Path) -> None:
    elsewhere = spooled.leave().rename(tmp_path / "elsewhere")
    (spooled.spool / SESSION).symlink_to(elsewhere)
    (spooled.spool / "ffffffffffff").write_text("a file")
    assert spooled.clean() == []
    assert len(list(elsewhere.iterdir())) == len(FILES)
    (spooled.spool / SESSION).unlink()
    elsewhere.rename(spooled.spool / SESSION)
    link = tmp_path / "link"
    link.symlink_to(spooled.spool)
    assert spooled.clean() == [SESSION]
    spooled.leave()
    spooled.spool.rename(tmp_path / "moved")
    for path in (tmp_path / "moved" / SESSION).iterdir():
        os.utime(path, (OLD, OLD))
    os.utime(tmp_path / "moved" / SESSION, (OLD, OLD))
    spooled.spool.symlink_to(tmp_path / "moved")
    assert remove_abandoned(spooled.spool, spooled.token) == []


def test_another_users_session_stays(spooled: Spooled, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = spooled.leave()
    other = os.getuid() + 1
    monkeypatch.setattr("eagle_parity.capture.servers.abandoned.os.getuid", lambda: other)
    assert spooled.clean() == []
    assert len(list(folder.iterdir())) == len(FILES)


def test_a_folder_that_is_not_the_servers_spool_stays(spooled: Spooled, tmp_path: Path) -> None:
    folder = spooled.leave()
    spooled.clean()
    again = spooled.leave()
    assert again == folder
    spooled.token, token = "0" * 64, spooled.token
    assert spooled.clean() == []
    (spooled.spool / "token").unlink()
    assert remove_abandoned(spooled.spool, token) == []
    assert remove_abandoned(tmp_path / "nothing", token) == []
    assert folder.is_dir()
