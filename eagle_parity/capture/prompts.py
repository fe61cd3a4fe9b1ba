"""Where the token ids of a capture come from: the shards' own (a replay) or a file of prompts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from eagle_parity.errors import InputError
from eagle_parity.input_files import check_file
from eagle_parity.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

MAX_LINE_BYTES = 16 * 1024 * 1024
"""One prompt a line; a line beyond this is no prompt, and is not read into memory."""
MAX_YAML_BYTES = 8 * 1024 * 1024
"""YAML is parsed as a whole, in many times its size: more belongs into JSONL, which is read line by line."""
MAX_TOKENS = 2**20
"""Above any context window that a target has; bounds what one entry can make this program allocate."""
MAX_MESSAGES = 10_000
"""Of one conversation; a bound for hostile files, above any real one."""

_EXPECTED = 'one prompt a line; or JSON lines or a YAML list with "text", "token_ids" or "messages"'


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """Token ids to run a forward over.

    Attributes:
        name: where they came from; unique within its source.
        token_ids: T of them.
        loss_mask: T integers where the source has them.
    """

    name: str
    token_ids: tuple[int, ...]
    loss_mask: tuple[int, ...] | None = None

    def truncated(self, max_tokens: int | None) -> TokenSequence:
        """The first ``max_tokens`` tokens: in a causal model their states don't depend on what is cut off."""
        if max_tokens is None or len(self.token_ids) <= max_tokens:
            return self
        mask = None if self.loss_mask is None else self.loss_mask[:max_tokens]
        return TokenSequence(self.name, self.token_ids[:max_tokens], mask)


@dataclass(frozen=True, slots=True)
class SkippedSequence:
    """A sequence that can't be captured: a value, so that the others still are.

    Attributes:
        name: as for a sequence.
        reason: one line.
    """

    name: str
    reason: str


TokenSource: TypeAlias = "Iterable[TokenSequence | SkippedSequence]"


def limit_sequences(
    source: TokenSource, *, sequences: int | None = None, max_tokens: int | None = None
) -> Iterator[TokenSequence | SkippedSequence]:
    """The first ``sequences`` usable ones, each cut to ``max_tokens``; what was skipped on the way is passed on."""
    left = sequences
    for item in source:
        if left == 0:
            return
        if isinstance(item, SkippedSequence):
            yield item
            continue
        if left is not None:
            left -= 1
        yield item.truncated(max_tokens)


def replay_sequences(path: str | Path, *, first_token: int | None = None) -> Iterator[TokenSequence | SkippedSequence]:
    """The token ids of shards or of a capture, file by file; no hidden state is read.

    Args:
        path: whatever the readers recognise.
        first_token: the id that each sequence begins with, for layouts that don't store it.

    Raises:
        InputError: it isn't readable at all, or it lacks the first tokens and nobody states them: a forward over the
            others would give other states.
    """
    from eagle_parity.hidden_states import Unreadable
    from eagle_parity.readers import open_hidden_states

    states = open_hidden_states(path, role="replay", first_token=first_token)
    if not states.layout.first_token:
        raise InputError(
            path,
            f"{states.layout.format} shards don't store the first token of a sequence",
            remedy="state it with --first-token: the first id that the target's chat template gives, for many its BOS",
        )
    yield from (SkippedSequence(broken.name, broken.reason) for broken in states.unreadable)
    for name in states.names:
        sequence = states.open(name)
        if isinstance(sequence, Unreadable):
            yield SkippedSequence(sequence.name, sequence.reason)
        elif sequence.token_ids is None:
            yield SkippedSequence(name, "the file has no token ids to replay")
        else:
            token_ids = tuple(sequence.token_ids.reshape(-1).tolist())
            mask = None if sequence.loss_mask is None else tuple(sequence.loss_mask.reshape(-1).tolist())
            yield TokenSequence(name, token_ids, mask if mask is not None and len(mask) == len(token_ids) else None)


class Encoder(Protocol):
    """Who makes token ids of texts and conversations: a target's tokenizer, or the server that is captured."""

    def encode_text(self, text: str) -> list[int]:
        """Token ids with what the tokenizer always adds, such as a BOS."""
        ...

    def encode_messages(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Through the chat template, with a generation prompt unless the assistant has the last word."""
        ...


class TargetEncoder:
    """The tokenizer in a target's folder, loaded when the first text needs it.

    Args:
        target_dir: the folder.
    """

    def __init__(self, target_dir: str | Path) -> None:
        self._target_dir = target_dir
        self._loaded: PreTrainedTokenizerBase | None = None

    @property
    def _tokenizer(self) -> PreTrainedTokenizerBase:
        if self._loaded is None:
            self._loaded = load_tokenizer(self._target_dir)
        return self._loaded

    def encode_text(self, text: str) -> list[int]:
        """As ``Encoder`` has it.

        Raises:
            InputError: there is no tokenizer in the folder.
        """
        token_ids: list[int] = self._tokenizer(text)["input_ids"]
        return token_ids

    def encode_messages(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """As ``Encoder`` has it."""
        conversation: Any = list(messages)
        encoded: Any = self._tokenizer.apply_chat_template(
            conversation,
            add_generation_prompt=messages[-1].get("role") != "assistant",
            tokenize=True,
            return_dict=True,
        )
        return [int(token) for token in encoded["input_ids"]]


def prompt_sequences(path: str | Path, encoder: Encoder) -> Iterator[TokenSequence | SkippedSequence]:
    """The prompts of a file as token ids of a target.

    A file whose first character is ``{`` is JSON lines, one called ``.yaml`` or ``.yml`` is a YAML list, any other has
    one prompt a line. An entry is a string, or an object with one of ``token_ids`` (taken as they are), ``text``
    or ``messages``, which the encoder makes token ids of.

    Args:
        path: the file.
        encoder: asked for the entries that are no token ids.

    Raises:
        InputError: the file can't be read or isn't one, or an entry needs a tokenizer that isn't there.
    """
    path = check_file(path, expected=f"a prompt file: {_EXPECTED}")
    for name, entry in _entries(path):
        if isinstance(entry, SkippedSequence):
            yield entry
            continue
        if isinstance(entry, str):
            entry = {"text": entry}  # noqa: PLW2901  the short form of the same entry
        if not isinstance(entry, dict):
            yield SkippedSequence(name, f"{type(entry).__name__}; expected {_EXPECTED}")
            continue
        if "token_ids" in entry:
            yield _from_token_ids(name, entry["token_ids"])
            continue
        yield _encode(name, entry, encoder)


def load_tokenizer(target_dir: str | Path) -> PreTrainedTokenizerBase:
    """The target's tokenizer, from its folder alone and without running code from it.

    Raises:
        InputError: there is none, or transformers can't load it.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            str(target_dir), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # the library raises whatever its parsers raise
        raise InputError(
            target_dir,
            f"its tokenizer can't be loaded ({one_line(error)})",
            expected="the tokenizer's files beside the weights",
            remedy='prompts given as "token_ids" need none',
        ) from error
    return tokenizer


def _entries(path: Path) -> Iterator[tuple[str, Any]]:
    """The entries of a prompt file with their names; an entry that can't be parsed is a ``SkippedSequence``."""
    try:
        with path.open("rb") as file:
            is_json_lines = file.read(4096).lstrip().startswith(b"{")
            if path.suffix.lower() in {".yaml", ".yml"} and not is_json_lines:
                yield from _yaml_entries(path)
                return
            file.seek(0)
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                name = f"{path.name}:{number}"
                if len(line) > MAX_LINE_BYTES:
                    while line and not line.endswith(b"\n"):
                        line = file.readline(MAX_LINE_BYTES)  # the rest of the same line
                    yield name, SkippedSequence(name, f"a line of more than {MAX_LINE_BYTES:,} bytes")
                elif line.strip():
                    yield name, _parse_line(name, line, is_json=is_json_lines)
    except OSError as error:
        raise InputError(path, error.strerror or str(error), expected=f"a prompt file: {_EXPECTED}") from error


def _parse_line(name: str, line: bytes, *, is_json: bool) -> Any:
    try:
        text = line.decode("utf-8").strip()
        return json.loads(text) if is_json else text
    except (ValueError, RecursionError) as error:
        return SkippedSequence(name, f"not {'JSON' if is_json else 'UTF-8 text'} ({one_line(error)})")


def _yaml_entries(path: Path) -> Iterator[tuple[str, Any]]:
    import yaml

    size = path.stat().st_size
    if size > MAX_YAML_BYTES:
        raise InputError(
            path, f"{size:,} bytes of YAML", expected=f"at most {MAX_YAML_BYTES:,}", remedy="use JSON lines"
        )
    try:
        entries = yaml.safe_load(path.read_bytes())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(path, f"not YAML ({one_line(error)})", expected=_EXPECTED) from error
    if not isinstance(entries, list):
        raise InputError(path, f"YAML, but {type(entries).__name__}", expected="a list of prompts")
    for number, entry in enumerate(entries, start=1):
        yield f"{path.name}:{number}", entry


def _from_token_ids(name: str, value: object) -> TokenSequence | SkippedSequence:
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        return SkippedSequence(name, '"token_ids" is no list of integers')
    if len(value) > MAX_TOKENS:
        return SkippedSequence(name, f"{len(value):,} tokens; at most {MAX_TOKENS:,} are taken")
    return TokenSequence(name, tuple(value))


def _encode(name: str, entry: Mapping[str, Any], encoder: Encoder) -> TokenSequence | SkippedSequence:
    text, messages = entry.get("text"), entry.get("messages")
    try:
        if isinstance(text, str):
            return _from_token_ids(name, encoder.encode_text(text))
        if isinstance(messages, list):
            problem = _check_messages(messages)
            return (
                SkippedSequence(name, problem) if problem else _from_token_ids(name, encoder.encode_messages(messages))
            )
    except InputError:
        raise  # there is no encoder, whatever the entry
    except Exception as error:  # noqa: BLE001  a chat template is a program from a file and raises what it likes
        return SkippedSequence(name, f"the target's tokenizer refuses it ({one_line(error)})")
    return SkippedSequence(name, f"keys {sorted(map(str, islice(entry, 8)))}; expected {_EXPECTED}")


def _check_messages(messages: list[Any]) -> str | None:
    if not messages or len(messages) > MAX_MESSAGES:
        return f"{len(messages)} messages; expected 1 to {MAX_MESSAGES:,}"
    if not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages):
        return '"messages" is no list of objects with "role" and "content"'
    return None
