"""The draft: an EAGLE-3 head's config.json, and the shape of its fc where weights lie beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from eagle_parity.config_files import ConfigFile, integer, read_config, strings
from eagle_parity.dialects import ANGELSLIM_IDS, SECTION, Dialect, find_dialect
from eagle_parity.errors import InputError
from eagle_parity.quoting import plain, quoted
from eagle_parity.wiring import MAX_BOUNDARIES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

IDS = "eagle_aux_hidden_state_layer_ids"
NESTED_IDS = f"{SECTION}.{IDS}"

ID_KEYS = (
    NESTED_IDS,
    IDS,
    ANGELSLIM_IDS,
    f"{SECTION}.layer_ids",
    "aux_hidden_state_layer_ids",
    "target_layer_ids",
    "dflash_config.target_layer_ids",
    "dspark_target_layer_ids",
    f"transformer_layer_config.{IDS}",
)
"""Every place in which trainers and exporters have put a list of layers."""

EXPECTED = "an EAGLE-3 draft's config.json"

DEFAULT_SLOTS = 3
"""What trainers and engines take where nothing states the number of slots: low, middle and high."""

VOCAB_MAP = "d2t"
"""The tensor by which a head of a smaller vocabulary names the target's tokens, as every trainer writes it."""

_FC_NAMES = ("fc.weight", "model.fc.weight", "draft_model.fc.weight", "eagle_module.fc.weight")
_FC_DIMENSIONS = 2

_MAX_WEIGHT_FILES = 64
"""A head is one file, or few; a folder with more is something else."""


class Family(StrEnum):
    """The kind of draft; layer-id rules here are EAGLE-3's and are applied to no other."""

    EAGLE3 = "eagle3"
    P_EAGLE = "p-eagle"
    DFLASH = "dflash"
    DSPARK = "dspark"
    EAGLE_1_2 = "eagle1-2"
    MTP = "mtp"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class IdList:
    """A list of layer ids as it stands in a config.

    Attributes:
        key: where, ``eagle_config.eagle_aux_hidden_state_layer_ids``.
        raw: what stands there, which may be anything.
        ids: the list where it is one of plain integers, else None.
        problem: why it is none.
    """

    key: str
    raw: Any
    ids: tuple[int, ...] | None
    problem: str | None = None

    def __str__(self) -> str:
        return quoted(self.raw)


@dataclass(frozen=True, slots=True)
class Draft:
    """What a draft's config.json says.

    Attributes:
        path: as it was given.
        folder: where its weights are, if there are any.
        architectures: as they stand.
        model_type: or "".
        family: the kind of draft.
        dialect: whose config it is.
        hidden_size: of the draft; None where the config has none.
        target_hidden_size: of the target, where the config states it; None where it doesn't.
        vocab_size: of the target, as the draft's config states it.
        draft_vocab_size: of the head's output, None where it isn't pruned or stated.
        id_lists: every list of layer ids in the config, in the order of ``ID_KEYS``.
        fc_shape: ``(out, in)`` of fc's weight, from the weights' header; None where there are none.
        fc_source: the file it was read from, or why it couldn't be.
        config: the JSON object, as read.
        tensors: the shape of every tensor by its name, from the weights' headers; None where no weights lie beside the
            config, or not all of their headers can be read.
    """

    path: str
    folder: Path | None
    architectures: tuple[str, ...]
    model_type: str
    family: Family
    dialect: Dialect
    hidden_size: int | None
    target_hidden_size: int | None
    vocab_size: int | None
    draft_vocab_size: int | None
    id_lists: tuple[IdList, ...]
    fc_shape: tuple[int, int] | None
    fc_source: str | None
    config: Mapping[str, Any]
    tensors: Mapping[str, tuple[int, ...]] | None = None

    @property
    def format(self) -> str:
        """What it is in ``inputs``: ``checkpoint`` where weights lie beside the config, else ``config``."""
        return "config" if self.fc_source is None else "checkpoint"

    @property
    def section(self) -> Mapping[str, Any]:
        """``eagle_config``, empty where there is none or it is no object."""
        section = self.config.get(SECTION)
        return section if isinstance(section, dict) else {}

    @property
    def width_per_slot(self) -> int | None:
        """The hidden size by which both engines size fc: ``target_hidden_size``, else the draft's own."""
        return self.target_hidden_size or self.hidden_size

    @property
    def output_size(self) -> int | None:
        """How many tokens the head chooses from, as engines take it: ``draft_vocab_size``, else ``vocab_size``."""
        return self.draft_vocab_size or self.vocab_size

    def fc_slots(self, hidden_size: int) -> int | None:
        """How many slots the weight of fc takes, for a target of this hidden size; None where that isn't known."""
        if self.fc_shape is None or self.fc_shape[1] == 0 or self.fc_shape[1] % hidden_size:
            return None
        return self.fc_shape[1] // hidden_size

    def with_changes(self, values: Mapping[str, Any]) -> Draft:
        """This draft with some keys set (dotted where nested), as if the file had been edited."""
        config = dict(self.config)
        for key, value in values.items():
            section, dot, name = key.partition(".")
            if dot:
                old = config.get(section)
                config[section] = {**(old if isinstance(old, dict) else {}), name: value}
            else:
                config[key] = value
        changed = replace(self, config=config)
        return replace(changed, id_lists=_id_lists(config))


def read_draft(source: str) -> Draft:
    """Reads a draft from a folder, a config.json, a bare JSON file of any name, or a Hub id.

    Raises:
        InputError: there is no config, or it is not a draft's.
    """
    return draft_from_config(read_config(source, what=EXPECTED))


def draft_from_config(file: ConfigFile) -> Draft:
    """A draft from a config that has been read.

    Raises:
        InputError: nothing in it is a draft's, be it a target's config or other JSON.
    """
    config = file.config
    layer = config.get("transformer_layer_config")
    layer = layer if isinstance(layer, dict) else {}
    if not layer and isinstance(config.get("model"), dict) and config.get("model_type") == "eagle":
        layer = config["model"]
    weights = _read_weights(file.folder)
    family = _family(config, weights.fc_shape is not None)
    if family is None:
        raise InputError(
            file.path,
            _no_draft(config),
            expected=EXPECTED,
            remedy="the draft comes first, the target goes to --target",
        )
    return Draft(
        path=file.source,
        folder=file.folder,
        architectures=strings(config.get("architectures")),
        model_type=plain(config.get("model_type")) if config.get("model_type") else "",
        family=family,
        dialect=find_dialect(config, weights.metadata),
        hidden_size=_positive(config, "hidden_size") or _positive(layer, "hidden_size"),
        target_hidden_size=_positive(config, "target_hidden_size"),
        vocab_size=_positive(config, "vocab_size") or _positive(layer, "vocab_size"),
        draft_vocab_size=_positive(config, "draft_vocab_size"),
        id_lists=_id_lists(config),
        fc_shape=weights.fc_shape,
        fc_source=weights.fc_source,
        config=config,
        tensors=weights.tensors,
    )


BLANK_CLASS = "LlamaForCausalLMEagle3"
"""The class of most published heads."""


def blank_draft(hidden_size: int) -> Draft:
    """A head of three slots without an id list, for questions about an engine rather than about a draft."""
    config = {"architectures": [BLANK_CLASS], "model_type": "llama", "hidden_size": hidden_size}
    return Draft(
        path="",
        folder=None,
        architectures=(BLANK_CLASS,),
        model_type="llama",
        family=Family.EAGLE3,
        dialect=Dialect.FLAT,
        hidden_size=hidden_size,
        target_hidden_size=None,
        vocab_size=None,
        draft_vocab_size=None,
        id_lists=(),
        fc_shape=None,
        fc_source=None,
        config=config,
    )


def look_up(config: Mapping[str, Any], key: str) -> Any:
    """The value under a dotted key; None where there is none."""
    section, dot, name = key.partition(".")
    if not dot:
        return config.get(key)
    inner = config.get(section)
    return inner.get(name) if isinstance(inner, dict) else None


def id_list(key: str, raw: object) -> IdList:
    """What stands under a key, with its ids where it is a list of integers of sane length."""
    if not isinstance(raw, list):
        return IdList(key, raw, None, f"{_kind(raw)} where a list of integers is expected")
    if len(raw) > MAX_BOUNDARIES:
        return IdList(key, raw, None, f"{len(raw):,} entries; no model has as many layers")
    bad = next((v for v in raw if not isinstance(v, int) or isinstance(v, bool)), None)
    if bad is not None or None in raw:
        return IdList(key, raw, None, f"an entry {quoted(bad)} that is no integer")
    if any(abs(v) >= MAX_BOUNDARIES for v in raw):
        return IdList(key, raw, None, "an entry that is the number of no layer")
    return IdList(key, raw, tuple(raw))


_KINDS: dict[type, str] = {str: "a string", dict: "an object", bool: "a boolean", int: "a number", float: "a number"}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "something else")


def _id_lists(config: Mapping[str, Any]) -> tuple[IdList, ...]:
    found = ((key, look_up(config, key)) for key in ID_KEYS)
    return tuple(id_list(key, raw) for key, raw in found if raw is not None)


def _positive(config: Mapping[str, Any], key: str) -> int | None:
    value = integer(config, key)
    return value if value is not None and value > 0 else None


_EAGLE3_KEYS = (
    SECTION,
    IDS,
    "draft_vocab_size",
    "num_aux_hidden_states",
    "norm_before_fc",
    "norm_before_residual",
    "norm_output",
    "fc_norm",
    "use_aux_norm",
    "target_hidden_size",
)

_FAMILY_WORDS = (
    ("dspark", Family.DSPARK),
    ("dflash", Family.DFLASH),
    ("peagle", Family.P_EAGLE),
    ("eagle3", Family.EAGLE3),
    ("nextn", Family.MTP),
    ("mtp", Family.MTP),
    ("eagle", Family.EAGLE_1_2),
)
"""In the order of specificity: every name with eagle3 in it also has eagle."""


def _family(config: Mapping[str, Any], has_fc: bool) -> Family | None:  # noqa: FBT001  a private question
    """The kind of draft; None where nothing says that it is one."""
    named = _named_family(config)
    section = config.get("dflash_config")
    if isinstance(section, dict) and named in {None, Family.DFLASH}:
        return Family.DSPARK if section.get("projector_type") == "dspark" else Family.DFLASH
    if named is not None:
        return named
    if any(key in config for key in _EAGLE3_KEYS):
        return Family.EAGLE3
    if "aux_hidden_state_layer_ids" in config or "target_layer_ids" in config:
        return Family.UNKNOWN
    layers = integer(config, "num_hidden_layers")
    if has_fc or (layers == 1 and config.get("architectures")):
        return Family.UNKNOWN
    return None


def _named_family(config: Mapping[str, Any]) -> Family | None:
    algorithm = config.get("speculators_model_type")
    named = [algorithm] if isinstance(algorithm, str) else []
    named += strings(config.get("architectures"))
    if config.get("model_type") in ("eagle", "eagle3", "p-eagle", "peagle"):
        named.append(str(config["model_type"]))
    for text in named:
        plain = re.sub(r"[^a-z0-9]", "", text[:200].lower())
        for word, family in _FAMILY_WORDS:
            if word in plain:
                return family
    return Family.UNKNOWN if algorithm else None


def _no_draft(config: Mapping[str, Any]) -> str:
    layers = integer(config, "num_hidden_layers")
    text = config.get("text_config")
    if layers is None and isinstance(text, dict):
        layers = integer(text, "num_hidden_layers")
    if layers is None:
        return "no key of a draft in it"
    named = ", ".join(plain(a) for a in strings(config.get("architectures"))[:2]) or "no architecture"
    return f"a target's config ({named}, {layers} layers), with no key of a draft in it"


class _Weights(NamedTuple):
    """What the headers of the weights beside a config say.

    Attributes:
        fc_shape, fc_source, tensors: as ``Draft`` has them.
        metadata: of the file that holds fc.
    """

    fc_shape: tuple[int, int] | None = None
    fc_source: str | None = None
    metadata: Mapping[str, str] = MappingProxyType({})
    tensors: Mapping[str, tuple[int, ...]] | None = None


def _read_weights(folder: Path | None) -> _Weights:
    if folder is None:
        return _Weights()
    files = sorted(folder.glob("*.safetensors"))[: _MAX_WEIGHT_FILES + 1]
    if not files:
        return _Weights()
    if len(files) > _MAX_WEIGHT_FILES:
        return _Weights(fc_source=f"more than {_MAX_WEIGHT_FILES} weight files beside the config")
    # Only where there are weights: the reader is not needed to check a config alone.
    from eagle_parity.readers.containers.safetensors_file import read_safetensors_table
    from eagle_parity.readers.containers.stored_tensor import PlainFile, UnreadableFileError

    found = _Weights()
    problem: str | None = None
    shapes: dict[str, tuple[int, ...]] = {}
    for path in files:
        try:
            with path.open("rb") as file:
                table = read_safetensors_table(file, PlainFile(path, path.stat().st_size))
        except (OSError, UnreadableFileError) as error:
            problem = f"{path.name}: {error}"
            continue
        shapes.update((name, tensor.shape) for name, tensor in table.tensors.items())
        for name in _FC_NAMES:
            tensor = table.tensors.get(name)
            if found.fc_shape is None and tensor is not None and len(tensor.shape) == _FC_DIMENSIONS:
                shape = (tensor.shape[0], tensor.shape[1])
                found = _Weights(shape, f"{path.name}: {name}", table.metadata)
    source = found.fc_source or problem or "no fc.weight in the weights beside the config"
    return found._replace(fc_source=source, tensors=None if problem else shapes)
