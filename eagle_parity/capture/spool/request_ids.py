"""Ids by which requests say that they are a capture's: ``eagle-parity.<session>.<signature>.<number>``.

The signature proves knowledge of the token that lies, mode 0600, in the spool's folder: a stranger's request with such
an id makes no file.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUEST_PREFIX = "eagle-parity."
# An engine puts its own words around it: vLLM makes cmpl-<id>-0-1a2b3c4d of it.
_REQUEST = re.compile(r"eagle-parity\.([0-9a-f]{12})\.([0-9a-f]{24})\.([0-9]{1,7})(?![0-9a-f])")
MAX_NUMBER = 10**7 - 1
"""Of a request within its session: the digits that an id has room for."""
_SESSION_NAME = re.compile(r"[0-9a-f]{12}")


class Mark(NamedTuple):
    """A request of ours."""

    session: str
    number: int


class SignedMark(NamedTuple):
    """What an id says, believed by nobody before ``is_signed`` says so."""

    mark: Mark
    signature: str


def new_session() -> str:
    """A session's name: 12 hex digits that no other has."""
    return secrets.token_hex(6)


def is_session(name: object) -> bool:
    """Whether a text is a session's name, and so a folder of the spool and nothing else."""
    return isinstance(name, str) and _SESSION_NAME.fullmatch(name) is not None


def request_id(token: str, session: str, number: int) -> str:
    """The id that makes a request one of ours.

    Args:
        token: of the spool.
        session: as ``new_session`` makes it.
        number: of the request within the session, below ten million.
    """
    return f"{REQUEST_PREFIX}{session}.{_signature(token, session)}.{number}"


def has_ours(request_ids: Sequence[object] | None) -> bool:
    """Whether one of a batch's ids looks like ours: all that it costs a batch of others."""
    return any(isinstance(one, str) and REQUEST_PREFIX in one for one in request_ids or ())


def read_request_id(identifier: object) -> SignedMark | None:
    """What an id says, within whatever the engine made of it; None where it is none of ours."""
    match = _REQUEST.search(identifier) if isinstance(identifier, str) else None
    return None if match is None else SignedMark(Mark(match[1], int(match[3])), match[2])


def is_signed(signed: SignedMark, token: str) -> bool:
    """Whether the id was made with this token."""
    return hmac.compare_digest(signed.signature, _signature(token, signed.mark.session))


def _signature(token: str, session: str) -> str:
    # The token itself would stand in the server's request log.
    return hmac.new(token.encode(), session.encode(), hashlib.sha256).hexdigest()[:24]
