"""A small disk over a spool's folder, so that it fills up."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mounts a tmpfs over a folder; the server's open spool is then on a disk of that size.

    Args:
        folder: which exists.
        size: as ``mount`` takes it, ``64m``.
    """
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if mount is None or umount is None:
        pytest.skip("there is no mount: a full disk needs a small one")
    words = [mount, "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(folder)]
    mounted = subprocess.run(words, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small disk needs the right to mount one: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run([umount, "--lazy", str(folder)], check=True)
