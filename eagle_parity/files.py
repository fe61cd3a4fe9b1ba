"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from eagle_parity.errors import InputError

PRIVATE_MODE = 0o600
PUBLIC_MODE = 0o644


def write_atomically(path: str | Path, data: bytes, *, private: bool = False) -> None:
    """Writes to a temporary name in the same folder, then renames.

    Args:
        path: the final name.
        data: the whole content.
        private: mode 0600, for files that hold prompts or states.

    Raises:
        InputError: the folder isn't there or can't be written to.
    """
    target = Path(path)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, PRIVATE_MODE if private else PUBLIC_MODE)  # noqa: PTH101  mkstemp gives a string
        os.replace(temporary, target)  # noqa: PTH105  as above
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise InputError(target, f"can't be written ({error.strerror or error})") from error
