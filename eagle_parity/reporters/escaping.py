"""Making text that came from a file harmless, and still readable, wherever it is printed."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Controls (ANSI escapes start with one), invisible and direction-changing characters, private use, unassigned,
lone surrogates, line separators: all of them can make a terminal or a diff show something else than what is there."""

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")

_SHORT_ESCAPES = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}

_MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]|~#$])")
_BLOCK_START = re.compile(r"^(\s*(?:\d+(?=[.)](?:\s|$)))?)([-+=.)])")
"""What opens a list or an underline at the start of a block: a dash, a number with a dot."""

_MENTION = re.compile(r"(?<![\w`])@(?=\w)")
_CODE = re.compile(r"`([^`]+)`")

ID_LIST = re.compile(r"[\[(](?:-?\d+|post_norm|\?)(?:, (?:-?\d+|post_norm|\?))*[\])]")
"""A list of ids or boundaries, which a person reads and copies as one."""

_CODE_LIKE = re.compile(rf"({ID_LIST.pattern}|(?<![\w/.])[A-Za-z][\w./]*_[\w./]*\w)")
"""What reads best as code: id lists, keys such as eagle_aux_hidden_state_layer_ids, paths."""


def visible(text: str) -> str:
    r"""The text with every unsafe character written out: ``\x1b``, ``\u202e``, ``\n``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(c) if unicodedata.category(c) in _UNSAFE_CATEGORIES else c for c in text)


def _escape(character: str) -> str:
    short = _SHORT_ESCAPES.get(character)
    if short:
        return short
    code = ord(character)
    if code <= 0xFF:  # noqa: PLR2004  the notations of Python's own string literals
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004  as above


def json_safe(text: str) -> str:
    """A JSON document whose strings hold no unsafe character raw: the same document, safe to print."""
    text = text.replace("\x7f", "\\u007f")
    return text if text.isascii() else _NOT_ASCII.sub(lambda run: _json_escaped(run.group()), text)


@lru_cache(maxsize=4096)
def _json_escaped(run: str) -> str:
    """A run of characters outside ASCII; documents repeat the few that they have."""
    return "".join(_json_escape(c) if unicodedata.category(c) in _UNSAFE_CATEGORIES else c for c in run)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def markdown(text: str) -> str:
    """Text for a Markdown paragraph or table cell: no markup, HTML, link, mention or line break of its own.

    Pairs of backticks stay code spans: our own messages quote commands so, and a code span is inert.
    """
    parts = _CODE.split(visible(text))
    return "".join(code_span(part) if i % 2 else _prose(part, first=i == 0) for i, part in enumerate(parts))


def _prose(text: str, *, first: bool) -> str:
    parts = _CODE_LIKE.split(text)
    return "".join(
        code_span(part) if i % 2 else _plain_markdown(part, first=first and i == 0) for i, part in enumerate(parts)
    )


def _plain_markdown(text: str, *, first: bool) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _MARKDOWN_SPECIAL.sub(r"\\\1", text)
    text = text.replace("://", r"\://").replace("www.", r"www\.")  # GitHub links bare addresses
    text = _MENTION.sub("@\u2060", text)  # a word joiner: GitHub notifies whoever is mentioned
    return _BLOCK_START.sub(r"\1\\\2", text) if first else text


def code_span(text: str) -> str:
    """Text as a Markdown code span, whatever backticks or pipes are in it."""
    text = visible(text).replace("|", r"\|")
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest or not text.strip() else ""
    return f"{fence}{pad}{text}{pad}{fence}"
