"""The token of a server's spool, from wherever it can be had."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from eagle_parity.capture.spool.folder import SPOOL_ENV, TOKEN_ENV, read_token
from eagle_parity.errors import InputError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def token_of(spool: Path | None, token: str | None) -> str | None:
    """The spool's token: as given, else of the environment, else from its folder if that is within reach.

    Raises:
        UsageError: what is given can't be one.
    """
    token = (token or os.environ.get(TOKEN_ENV) or "").strip()
    if token and not (token.isascii() and token.isprintable()):
        raise UsageError(f"--token or {TOKEN_ENV} isn't plain text: expected the content of the spool's file token")
    if token:
        return token
    if spool is None:
        return None
    try:
        return read_token(spool)
    except (OSError, ValueError):
        return None


def is_spool_here(spool: Path | None, token: str) -> bool:
    """Whether a folder of this host is the server's spool, wherever its token came from.

    A server of another host names a folder of its own, and this host may have another spool in that place.
    """
    try:
        return spool is not None and read_token(spool) == token
    except (OSError, ValueError):
        return False


def no_token(url: str, spool: Path | None, *, another: bool = False) -> InputError:
    """What to say where there is no token, or ``another`` than the server's."""
    where = f"{spool}/token" if spool else f"the spool's folder, in the file token ({SPOOL_ENV})"
    return InputError(
        url,
        f"the token of here isn't that of its spool ({where}, {TOKEN_ENV} or --token)"
        if another
        else f"its spool's token can't be read from here ({where})",
        remedy="pass --spool with the folder that the server was started with, where it is seen from here, or the"
        f" content of its file token in {TOKEN_ENV} or with --token",
    )
