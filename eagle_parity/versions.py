"""Release versions of engines and trainers: read as packages state them, compared by meaning, never by spelling.

A package's ``__version__`` may carry a build (``0.32.0+cpu``), another spelling (``0.5.12-post1``, ``v0.5.12.0``) or be
no release at all (``0.5.23.dev1+g12``). The build is left out, spellings are one, and what is no release is never the
same as one: the tables hold releases only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from eagle_parity.errors import UsageError
from eagle_parity.quoting import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

_VERSION = re.compile(
    r"v?(?P<release>\d{1,6}(?:\.\d{1,6}){0,4})"
    r"(?:[._-]?(?P<pre>alpha|beta|preview|pre|rc|a|b|c)[._-]?(?P<pre_number>\d{0,6}))?"
    r"(?:[._-]?(?P<post>post|rev|r)[._-]?(?P<post_number>\d{0,6})|-(?P<implicit>\d{1,6}))?"
    r"(?:[._-]?(?P<dev>dev)[._-]?(?P<dev_number>\d{0,8}))?"
    r"(?:\+[a-z0-9]{1,40}(?:[._-][a-z0-9]{1,40}){0,8})?"
)
"""The form of Python packages' versions, without epochs, which none of these packages has."""

_PRE = {"alpha": "a", "a": "a", "beta": "b", "b": "b", "c": "rc", "rc": "rc", "pre": "rc", "preview": "rc"}
_PRE_ORDER = ("a", "b", "rc")

_BEFORE, _WITHOUT, _AFTER = -1, len(_PRE_ORDER), 1 << 30
"""Places of a version that has no such part: a dev build comes before a's, a release after every rc."""


class Version(NamedTuple):
    """A version as its order: 0.5.10 after 0.5.9, 0.5.12.post1 after 0.5.12, 0.5.12rc1 and 0.5.12.dev1 before it.

    Attributes:
        release: without trailing zeros: 0.5.12.0 is 0.5.12.
        pre: alpha, beta or rc, and its number.
        post: 0 and up; -1 for none.
        dev: its number; greater than any where it is no dev build.
    """

    release: tuple[int, ...]
    pre: tuple[int, int]
    post: int
    dev: int

    @property
    def is_release(self) -> bool:
        """Whether it was released as such: neither a pre-release nor a dev build."""
        return self.pre == (_WITHOUT, 0) and self.dev == _AFTER


def parse_version(text: str) -> Version:
    """Reads a version.

    Raises:
        UsageError: it is none.
    """
    match = _match(text)
    release = [int(part) for part in match["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    post = match["post_number"] if match["post"] else match["implicit"]
    if match["pre"]:
        pre = (_PRE_ORDER.index(_PRE[match["pre"]]), int(match["pre_number"] or 0))
    elif match["dev"] and post is None:
        pre = (_BEFORE, 0)
    else:
        pre = (_WITHOUT, 0)
    return Version(
        tuple(release),
        pre,
        -1 if post is None else int(post or 0),
        int(match["dev_number"] or 0) if match["dev"] else _AFTER,
    )


def spell_version(text: str) -> str:
    """A version in one spelling, without its build: ``0.5.12-post1`` is ``0.5.12.post1``, ``v0.32.0+cpu`` ``0.32.0``.

    Raises:
        UsageError: it is none.
    """
    match = _match(text)
    spelt = str(match["release"])
    if match["pre"]:
        spelt += f"{_PRE[match['pre']]}{int(match['pre_number'] or 0)}"
    post = match["post_number"] if match["post"] else match["implicit"]
    if post is not None:
        spelt += f".post{int(post or 0)}"
    return spelt + (f".dev{int(match['dev_number'] or 0)}" if match["dev"] else "")


def in_range(version: str, first: str, last: str) -> bool:
    """Whether ``first <= version <= last``."""
    return parse_version(first) <= parse_version(version) <= parse_version(last)


def known_version(version: str, known: Iterable[str]) -> str | None:
    """The known version that this one is, in its spelling there; None where it is none of them."""
    wanted = parse_version(version)
    return next((candidate for candidate in known if parse_version(candidate) == wanted), None)


def nearest_version(version: str, known: Iterable[str]) -> str:
    """The newest known version that isn't newer than this one; the oldest where all are newer."""
    ordered = sorted(known, key=parse_version)
    wanted = parse_version(version)
    not_newer = [candidate for candidate in ordered if parse_version(candidate) <= wanted]
    return not_newer[-1] if not_newer else ordered[0]


def _match(text: str) -> re.Match[str]:
    match = _VERSION.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"{quoted(text)} is no version; expected one such as 0.5.12 or 0.5.12.post1")
    return match
