"""The rule tables as rows, for ``engines`` and for the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagle_parity.engines import ENGINES
from eagle_parity.engines.class_rules import AtEmbedding, Outside
from eagle_parity.engines.draft_rules import Placeholder
from eagle_parity.engines.reference import TRANSFORMERS

if TYPE_CHECKING:
    from eagle_parity.engines.class_rules import ClassRule
    from eagle_parity.engines.draft_rules import BufferRule, WidthRule
    from eagle_parity.engines.engine import EngineOption
    from eagle_parity.engines.rules import Engine


def engine_tables() -> dict[str, Any]:
    """Every rule with its version range and source, by kind: JSON values, a row an object."""
    return {
        "engines": [
            {
                "engine": engine.name,
                "title": engine.title,
                "versions": list(engine.versions),
                "options": {option.name: _values(option) for option in engine.options},
            }
            for engine in ENGINES
        ],
        "options": [
            {"engine": engine.name, "option": option.name, "values": _values(option), "meaning": option.meaning}
            for engine in ENGINES
            for option in engine.options
        ],
        "keys": [row for engine in ENGINES for row in _key_rows(engine)],
        "classes": [_class_row(engine, rule) for engine in ENGINES for rule in engine.classes],
        "refused": [
            {
                "engine": engine.name,
                "versions": _span(refused.first, refused.last),
                "architectures": list(refused.architectures),
                "reason": refused.reason,
                "source": refused.source,
            }
            for engine in ENGINES
            for refused in engine.no_setter
        ],
        "unruled": [
            {
                "engine": engine.name,
                "versions": _span(unruled.first, unruled.last),
                "architectures": list(unruled.architectures),
                "reason": unruled.reason,
                "source": unruled.source,
            }
            for engine in ENGINES
            for unruled in engine.no_rule
        ],
        "wrappers": [
            {
                "engine": engine.name,
                "versions": _span(wrapper.first, wrapper.last),
                "architectures": list(wrapper.architectures),
                "refused_around": list(wrapper.without),
                "reason": wrapper.reason,
                "source": wrapper.source,
            }
            for engine in ENGINES
            for wrapper in engine.wrappers
        ],
        "widths": [
            {
                "engine": engine.name,
                "versions": _span(rule.first, rule.last),
                "draft_class": rule.draft_class,
                "slots": _slots(rule),
                "past_fc": rule.skips.value,
                "source": rule.source,
            }
            for engine in ENGINES
            for rule in engine.width_rules
        ],
        "buffers": [
            {
                "engine": engine.name,
                "versions": _span(rule.first, rule.last),
                "slots": _slots(rule),
                "source": rule.source,
            }
            for engine in ENGINES
            for rule in engine.buffer_rules
        ],
        "vocab_maps": [
            {
                "engine": engine.name,
                "versions": _span(rule.first, rule.last),
                "whole_vocabulary_with_d2t": rule.whole or "is read",
                "smaller_vocabulary_without_d2t": rule.pruned,
                "source": rule.source,
            }
            for engine in ENGINES
            for rule in engine.vocab_maps
        ],
        "extractions": [
            {
                "engine": engine.name,
                "versions": _span(rule.first, rule.last),
                "list_given_by": rule.way.value,
                "ids": "0 to N-1" if rule.layers_only else "those that a setter reads",
                "source": rule.source,
            }
            for engine in ENGINES
            for rule in engine.extractions
        ],
        "written": [
            {
                "engine": engine.name,
                "versions": _span(rule.first, rule.last),
                "key": rule.key,
                "into": rule.file or "the draft's config.json",
                "spellings": [
                    " and ".join(f"{key}: {_value(v)}" for key, v in each.items()) for each in rule.spellings
                ],
            }
            for engine in ENGINES
            for rule in engine.spellings
        ],
        "defects": [
            {
                "engine": engine.name,
                "versions": _span(rule.first, rule.last),
                "classes": rule.family,
                "defect": defect.name,
                "summary": defect.summary,
                "when": defect.when.value,
                "source": defect.source,
            }
            for engine in ENGINES
            for rule in engine.classes
            for defect in rule.defects
        ]
        + [
            {
                "engine": engine.name,
                "versions": _span(rule.first, rule.last),
                "classes": f"drafts: {rule.draft_class}",
                "defect": rule.skipped.name,
                "summary": rule.skipped.summary,
                "when": f"one aux state goes past fc, {rule.skips.value}",
                "source": rule.skipped.source,
            }
            for engine in ENGINES
            for rule in engine.width_rules
            if rule.skipped is not None
        ]
        + [
            {
                "engine": engine.name,
                "versions": _span(entry.first, entry.last),
                "classes": "all" + (f" except {', '.join(entry.except_for)}" if entry.except_for else ""),
                "defect": entry.defect.name,
                "summary": entry.defect.summary,
                "when": entry.defect.when.value,
                "source": entry.defect.source,
            }
            for engine in ENGINES
            for entry in engine.launch_defects
        ],
        "references": [
            {
                "reference": TRANSFORMERS.name,
                "versions": ", ".join(TRANSFORMERS.versions),
                "index": TRANSFORMERS.index,
                "last_index": TRANSFORMERS.last,
                "serves": "no EAGLE-3 head",
                "source": TRANSFORMERS.source,
            }
        ],
    }


def _values(option: EngineOption) -> list[str]:
    return list(option.values) or [option.known]


def _key_rows(engine: Engine) -> list[dict[str, Any]]:
    return [
        {
            "engine": engine.name,
            "versions": _span(rule.first, rule.last),
            "variant": f"{engine.runner_option}={rule.runner}" if rule.runner else "",
            "order": position,
            "key": step.key,
            "shift": step.shift,
            "taken_when": step.taken.value,
            "source": rule.source,
        }
        for rule in engine.key_rules
        for position, step in enumerate(rule.steps, start=1)
    ]


def _class_row(engine: Engine, rule: ClassRule) -> dict[str, Any]:
    last = "KeyError at load" if rule.outside is Outside.LOOKUP_ERROR else Outside.NEVER_MATCHES.value
    if rule.outside is Outside.FLAGS_BY_INDEX:
        last = "IndexError at load"
    return {
        "engine": engine.name,
        "versions": _span(rule.first, rule.last),
        "family": rule.family,
        "architectures": list(rule.architectures),
        "ids": rule.setter.value,
        "default": rule.default.value,
        "index_0": AtEmbedding(rule.embedding).value,
        "index_n": "delivers the last layer's output, before the final norm" if rule.reaches_last else last,
        "outside": rule.outside.value,
        "captures": rule.captures.value,
        "order": rule.order.value,
        "missing_state": rule.shortfall.value,
        "remark": rule.remark,
        "source": str(rule.source),
    }


def _value(value: object) -> str:
    return value.value if isinstance(value, Placeholder) else str(value).lower()


def _slots(rule: WidthRule | BufferRule) -> str:
    return ", else ".join([*rule.keys, str(rule.fallback)])


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"
