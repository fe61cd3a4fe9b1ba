"""What a path is: shards, a capture, a draft, a target or loose tensors; and what it can't say about itself.

Only headers are read, so that neither torch nor much time is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle_parity.config_files import ConfigFile, read_config
from eagle_parity.dialects import IDS_MEAN
from eagle_parity.drafts import Draft, Family, draft_from_config
from eagle_parity.errors import InputError
from eagle_parity.findings import UNREADABLE_SHARD, Finding
from eagle_parity.hidden_states import Unreadable
from eagle_parity.quoting import evidence_value, quoted
from eagle_parity.readers import open_hidden_states
from eagle_parity.readers.containers import TensorTable, UnreadableFileError, read_table
from eagle_parity.results import Input
from eagle_parity.targets import TARGET_FORMAT, Target, target_from_config

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eagle_parity.hidden_states import HiddenStates, Layout

ROLE = "inspected"

MAX_COUNTED = 1000
"""Files whose headers are read to count tokens; of more, as many are taken at even distances."""

MAX_COUNTED_GZIP = 4
"""A gzip must be inflated as a whole to get at its header, which takes seconds."""

MAX_TENSORS_TOLD = 200
"""A head has a dozen tensors; a target's shard has hundreds, which nobody reads in a report."""

MAX_FILES_TOLD = 16

_SIDE_BY_SIDE = "which boundaries an engine makes of its ids: `check-config --engine ENGINE@VERSION --target TARGET`"
_TRAINED_WIRING = (
    "which boundaries it was trained on: `check-config --trained-with`, `--trained-boundaries` or `--shards`"
)


@dataclass(frozen=True, slots=True)
class Inspection:
    """What one path turned out to be.

    Attributes:
        input: for the result's list of inputs.
        description: JSON values, for ``measurements``.
        findings: files of it that can't be read.
    """

    input: Input
    description: dict[str, Any]
    findings: tuple[Finding, ...] = field(default=())


def inspect_path(source: str, *, step: Callable[[str], None] = lambda _: None) -> Inspection:
    """Describes one path.

    Args:
        source: a file, a folder, or a Hub id of a draft or target.
        step: called with the name of each file that is looked into, where there are many.

    Raises:
        InputError: it is nothing that can be described.
    """
    path = Path(source).expanduser()
    try:
        is_file, is_model = path.is_file(), (path / "config.json").is_file()
        is_folder, is_there = path.is_dir(), path.exists()
    except (OSError, ValueError) as error:
        raise InputError(source, f"no path ({error})", expected="shards, a capture, a draft or a target") from error
    if is_file:
        return _inspect_file(path, source, step)
    if is_folder and not is_model:
        return _inspect_states(source, step)
    if is_there and not is_folder:
        raise InputError(source, "no regular file", expected="shards, a capture, a draft or a target")
    return _inspect_config(read_config(source, what="shards, a capture, or the config.json of a draft or target"))


def _inspect_file(path: Path, source: str, step: Callable[[str], None]) -> Inspection:
    try:
        table = read_table(path)
    except UnreadableFileError as error:
        if path.suffix == ".json":
            return _inspect_config(read_config(source, what="the config.json of a draft or target"))
        raise InputError(source, str(error), expected="shards, a capture, a draft or a target") from error
    try:
        return _inspect_states(source, step)
    except InputError as error:
        # A container of tensors, but of no known layout of states: a checkpoint, a vocabulary map, or unknown shards.
        return _describe_tensors(source, table, error.found)


def _inspect_states(source: str, step: Callable[[str], None]) -> Inspection:
    states = open_hidden_states(source, role=ROLE, max_files=MAX_COUNTED)
    layout = states.layout
    counted, tokens, bad = _count(states, step)
    sequences = _estimate_sequences(states)
    exact = counted == sequences
    description: dict[str, Any] = {
        "path": source,
        "kind": "capture" if layout.format in {"capture", "sglang-dumper"} else "shards",
        "format": layout.format,
        "description": layout.description,
        "sequences": None if states.files_left_out else sequences,
        "sequences_estimated": sequences if states.files_left_out else None,
        "tokens": tokens if exact else None,
        "tokens_estimated": None if exact else round(tokens / max(1, counted - len(bad)) * sequences),
        "sequences_counted": counted,
        "slots": layout.slots,
        "hidden_size": layout.hidden_size,
        "dtype": layout.dtype,
        "last_state": {"stored": str(layout.last_state), "boundary": layout.last_state_boundary},
        "declared": _declared(layout),
        "declared_by": layout.declared_by,
        "unknown": list(layout.unknown),
        "facts": {key: evidence_value(value) for key, value in layout.facts.items()},
    }
    return Inspection(
        input=Input(
            role=ROLE,
            path=source,
            format=layout.format,
            sequences=None if states.files_left_out else sequences,
            tokens=tokens if exact else None,
            slots=layout.slots,
            hidden_size=layout.hidden_size,
        ),
        description=description,
        findings=_unreadable(source, [*states.unreadable, *bad], len(states.names) + len(states.unreadable)),
    )


def _estimate_sequences(states: HiddenStates) -> int:
    """How many sequences there are; of a sample of the files, how many those lead to expect."""
    if not states.files_left_out:
        return len(states.names)
    looked_into = len({name.rpartition("#")[0] for name in states.names})
    return round(len(states.names) * (1 + states.files_left_out / max(1, looked_into)))


def _declared(layout: Layout) -> dict[str, Any] | None:
    if layout.declared is None:
        return None
    return {"slots": list(layout.declared.slots), "last_state": layout.declared.last_state}


def _count(states: HiddenStates, step: Callable[[str], None]) -> tuple[int, int, list[Unreadable]]:
    """How many files were counted, their tokens, and those that can't be read."""
    names = states.names
    limit = MAX_COUNTED_GZIP if names and names[0].endswith(".gz") else MAX_COUNTED
    stride = max(1, -(-len(names) // limit))
    tokens = 0
    bad: list[Unreadable] = []
    taken = names[::stride]
    for name in taken:
        step(name)
        count = states.count_tokens(name)
        if isinstance(count, Unreadable):
            bad.append(count)
        else:
            tokens += count
    return len(taken), tokens, bad


def _unreadable(source: str, bad: Sequence[Unreadable], total: int) -> tuple[Finding, ...]:
    if not bad:
        return ()
    first = bad[0]
    return (
        UNREADABLE_SHARD.finding(
            f"{quoted(source)}: {len(bad):,} of {total:,} files can't be read; {quoted(first.name)}: {first.reason}",
            evidence={
                "files": [{"name": entry.name, "reason": entry.reason} for entry in bad[:MAX_FILES_TOLD]],
                "unreadable": len(bad),
                "total": total,
            },
            remedy="A file of another layout is no fault: inspect the parts one by one. Make a broken one again.",
        ),
    )


def _inspect_config(file: ConfigFile) -> Inspection:
    try:
        draft = draft_from_config(file)
    except InputError as no_draft:
        try:
            target = target_from_config(file)
        except InputError:
            raise InputError(
                file.path,
                "JSON, but neither a draft's config nor a target's",
                expected="the config.json of an EAGLE-3 draft or of its target",
            ) from no_draft
        return _describe_target(file, target)
    return _describe_draft(file, draft)


def _describe_draft(file: ConfigFile, draft: Draft) -> Inspection:
    width = draft.width_per_slot
    slots = draft.fc_slots(width) if width else None
    description: dict[str, Any] = {
        "path": file.source,
        "kind": "draft",
        "format": draft.dialect.value,
        "description": f"a draft of the {draft.family.value} family, written as {draft.dialect.value} does",
        "architectures": evidence_value(list(draft.architectures)),
        "layer_ids": {ids.key: evidence_value(ids.raw) for ids in draft.id_lists},
        "hidden_size": draft.hidden_size,
        "target_hidden_size": draft.target_hidden_size,
        "vocab_size": draft.vocab_size,
        "draft_vocab_size": draft.draft_vocab_size,
        "fc": None if draft.fc_shape is None else list(draft.fc_shape),
        "slots": slots,
        "weights": _weights(draft.folder),
        "unknown": [_TRAINED_WIRING, _SIDE_BY_SIDE],
        "facts": _draft_facts(draft),
    }
    return Inspection(
        Input(role=ROLE, path=file.source, format=draft.format, slots=slots, hidden_size=draft.hidden_size), description
    )


def _draft_facts(draft: Draft) -> dict[str, str]:
    """Where fc was read, and what the trainer that writes such configs means by their ids."""
    facts = {} if draft.fc_source is None else {"fc": draft.fc_source}
    if draft.family is not Family.EAGLE3:
        return facts
    meaning = IDS_MEAN.get(draft.dialect)
    return facts if meaning is None else {**facts, "ids_mean": meaning}


def _describe_target(file: ConfigFile, target: Target) -> Inspection:
    description: dict[str, Any] = {
        "path": file.source,
        "kind": "target",
        "format": "config.json",
        "description": f"a target of {target.num_layers} layers: boundaries 0 to {target.num_layers}, and post_norm",
        "architectures": evidence_value([*target.architectures, *target.text_architectures]),
        "num_layers": evidence_value(target.num_layers),
        "hidden_size": evidence_value(target.hidden_size),
        "vocab_size": evidence_value(target.vocab_size),
        "unknown": ["what an engine makes of an id list on it: `ids BOUNDARIES --target TARGET`"],
    }
    return Inspection(
        Input(role=ROLE, path=file.source, format=TARGET_FORMAT, hidden_size=target.hidden_size), description
    )


def _describe_tensors(source: str, table: TensorTable, why: str) -> Inspection:
    description: dict[str, Any] = {
        "path": source,
        "kind": "tensors",
        "format": table.container,
        "description": "tensors of no layout of hidden states that is known here",
        "not_read_because": evidence_value(why),
        "tensors": _told(table),
        "unknown": ["what the tensors mean: pass the folder with its config.json, if it is a draft"],
    }
    return Inspection(Input(role=ROLE, path=source, format=table.container), description)


def _weights(folder: Path | None) -> dict[str, Any]:
    """The tensors beside a draft's config, by file."""
    files = sorted(folder.glob("*.safetensors"))[:MAX_FILES_TOLD] if folder is not None else []
    told: dict[str, Any] = {}
    for path in files:
        try:
            told[path.name] = _told(read_table(path))
        except UnreadableFileError as error:
            told[path.name] = f"can't be read: {error}"
    return told


def _told(table: TensorTable) -> dict[str, str]:
    if table.records:
        return {
            f"of the first of {len(table.records):,}: {key}": value for key, value in _told(table.records[0]).items()
        }
    entries = {key: str(tensor) for key, tensor in table.tensors.items()}
    entries.update({key: f"list of {len(tensors)}: {tensors[0]}" for key, tensors in table.lists.items()})
    entries.update(dict.fromkeys(table.others, "no tensor"))
    cut = {str(evidence_value(key)): value for key, value in list(entries.items())[:MAX_TENSORS_TOLD]}
    if len(entries) > MAX_TENSORS_TOLD:
        cut["..."] = f"{len(entries):,} in all"
    return cut
