"""From a draft's config to the indices that a target class is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from eagle_parity.drafts import id_list, look_up
from eagle_parity.engines.class_rules import SHIFTS, ClassRule, Malformed, Outside, Setter, default_indices
from eagle_parity.engines.draft_rules import DraftSeen, KeyRule, Taken
from eagle_parity.engines.failures import Failure, FailureKind
from eagle_parity.quoting import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence


class IdReading(msgspec.Struct, frozen=True):
    """What an engine found where it looks for the id list.

    Attributes:
        key: where, as the file has it; None where nothing was taken.
        raw: what goes to the setter; None for the default.
        ids: the list as integers, where it is one.
        shift: added by the key's own rule.
    """

    key: str | None
    raw: Any
    ids: tuple[int, ...] | None
    shift: int = 0

    @property
    def default(self) -> bool:
        """Whether the default is taken."""
        return self.key is None


def read_ids(seen: DraftSeen, rule: KeyRule) -> IdReading:
    """Looks for the id list in the order in which the engine does."""
    for step in rule.steps:
        value = look_up(seen.config, step.key)
        if step.taken is Taken.SECTION:
            section = seen.config.get(step.key.partition(".")[0])
            ends = isinstance(section, dict) and bool(section)
        else:
            ends = bool(value) if step.taken is Taken.TRUTHY else value is not None
        if not ends:
            continue
        if rule.list_required and not (isinstance(value, list) and value):
            break
        if value is None:
            break
        key = seen.renamed.get(step.key, step.key)
        return IdReading(key, value, id_list(key, value).ids, step.shift)
    return IdReading(None, None, None)


def ask(rule: ClassRule, reading: IdReading, num_layers: int) -> tuple[int | None, ...] | Failure:
    """The indices that the target class asks for; None for an entry that never matches a layer."""
    if reading.default:
        if num_layers < rule.default_needs:
            words = f"ValueError at load: the default needs {rule.default_needs} layers, the target has {num_layers}"
            return Failure(FailureKind.OUT_OF_RANGE, at_load=True, words=words)
        return default_indices(rule.default, num_layers)
    entries = reading.raw
    if not isinstance(entries, list):
        if rule.malformed is Malformed.TYPE_ERROR or not isinstance(entries, str | dict):
            return _malformed(f"TypeError at load: {quoted(entries)} is no list")
        entries = list(entries)
    numbers = [_number(entry) for entry in entries]
    odd = [entry for entry, number in zip(entries, numbers, strict=True) if number is _NOT_A_NUMBER]
    unsortable = rule.malformed is Malformed.UNSORTABLE and not all(isinstance(e, str) for e in entries)
    if odd and (rule.malformed is Malformed.TYPE_ERROR or unsortable):
        return _malformed(f"TypeError at load: the entry {quoted(odd[0])} is no number")
    if rule.outside is Outside.FLAGS_BY_INDEX and any(isinstance(e, float) for e in entries):
        return _malformed("TypeError at load: 'float' object cannot be interpreted as an integer")
    if rule.outside is Outside.LOOKUP_ERROR and None in numbers:
        return _malformed(f"KeyError at load: the entry {quoted(entries[numbers.index(None)])} is no layer")
    shift = reading.shift + _setter_shift(rule.setter, numbers, num_layers)
    return tuple(n + shift if isinstance(n, int) else None for n in numbers)


class _NotANumber:
    """Marks an entry that no arithmetic takes."""


_NOT_A_NUMBER = _NotANumber()


def _number(entry: object) -> int | _NotANumber | None:
    """An entry as Python's membership test sees it: 2.0 is 2, True is 1, 2.5 is no layer."""
    if isinstance(entry, int):
        return int(entry)
    if isinstance(entry, float):
        return int(entry) if entry.is_integer() else None
    return _NOT_A_NUMBER


def _malformed(words: str) -> Failure:
    return Failure(FailureKind.MALFORMED, at_load=True, words=words)


def _setter_shift(setter: Setter, numbers: Sequence[object], num_layers: int) -> int:
    shifts = SHIFTS[setter]
    if setter is Setter.PLUS_ONE_IF_FIRST_IS_ONE:
        return max(shifts) if numbers[:1] == [1] else min(shifts)
    if setter is Setter.AS_IS_IF_LAST_LAYER:
        greatest = max((n for n in numbers if isinstance(n, int)), default=None)
        return min(shifts) if greatest == num_layers else max(shifts)
    (shift,) = shifts
    return shift
