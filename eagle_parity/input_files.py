"""Opening what a person named as an input: what it is not is said before it is read."""

from __future__ import annotations

from pathlib import Path

from eagle_parity.errors import InputError

A_FOLDER = "a folder"
NO_REGULAR_FILE = "no regular file"
NOTHING_THERE = "no such file or folder"


def check_file(source: str | Path, *, expected: str) -> Path:
    """The path of a regular file.

    A pipe or a device is none: reading it may never end, and some inputs are read twice.

    Args:
        source: as it was given, ``~`` included.
        expected: what should have been there, for the error.

    Raises:
        InputError: nothing is there, or something else.
    """
    if not str(source):
        raise InputError("''", "an empty path", expected=expected)
    path = Path(source).expanduser()
    found = why_no_file(path)
    if found is not None:
        raise InputError(source, found, expected=expected)
    return path


def why_no_file(path: Path) -> str | None:
    """Why something isn't a regular file, in words; None where it is one."""
    try:
        if path.is_file():
            return None
        if path.is_dir():
            return A_FOLDER
        return NO_REGULAR_FILE if path.exists() else NOTHING_THERE
    except (OSError, ValueError) as error:  # too long, or a NUL in it
        return f"no path ({error})"


def read_bounded(source: str | Path, limit: int, *, expected: str) -> bytes:
    """The content of a regular file of at most ``limit`` bytes.

    Raises:
        InputError: there is none, it is larger, or it can't be read.
    """
    path = check_file(source, expected=expected)
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise InputError(source, error.strerror or str(error), expected=expected) from error
    if len(data) > limit:
        raise InputError(source, f"more than {limit:,} bytes", expected=expected)
    return data
