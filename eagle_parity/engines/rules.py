"""An engine with its tables: data, with the place in the engine where each rule was read.

A rule follows a draft's id list through an engine: which key is read (``KeyRule``), what the target class asks its
layers for (``ClassRule.setter``), what its forward delivers (the other fields of ``ClassRule``), how many slots the
draft's fc is built for (``WidthRule``). ``serving.py`` interprets them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from eagle_parity.drafts import Draft
from eagle_parity.engines.class_rules import ClassRule, LaunchDefect, NoRule, NoSetter, Wrapper
from eagle_parity.engines.draft_rules import BufferRule, DraftSeen, KeyRule, SpellingRule, WidthRule
from eagle_parity.engines.engine import EngineOption
from eagle_parity.engines.failures import Timing
from eagle_parity.engines.launch_rules import ExtractionRule
from eagle_parity.engines.ranges import in_force
from eagle_parity.engines.vocab_map import VocabMapRule
from eagle_parity.targets import Target


class VariantRule(msgspec.Struct, frozen=True):
    """What a stock launch can be, in a range of versions.

    Attributes:
        variants: as option values; a named option narrows them.
        first, last: versions, inclusive.
    """

    variants: tuple[Mapping[str, str], ...]
    first: str
    last: str


class Unread(msgspec.Struct, frozen=True):
    """An option does something to a target class that wasn't read: why, as part of a sentence."""

    reason: str


class Instead(msgspec.Struct, frozen=True):
    """An option has the engine load another class than the one that the target's config names.

    Attributes:
        architecture: under which the tables know that class.
    """

    architecture: str


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """An engine with its tables; every rule has its own range of versions.

    Attributes:
        name: ``sglang``.
        title: ``SGLang``.
        versions: every release that was read, oldest first.
        options: on what its reading depends beside the version.
        variants: what a stock launch can be.
        runner_option: the option by whose value ``key_rules`` and ``timings`` are chosen; None where there is none.
        key_rules: where the id list is looked for.
        timings: when failures show.
        classes: the rules of the target classes.
        no_setter: classes that it refuses.
        no_rule: classes that it captures from, and that no rule covers.
        wrappers: classes around a language model of the config's choice.
        text_classes: the class of a language model whose config names none, by its ``model_type``.
        width_rules: how draft classes size fc, for the docs.
        buffer_rules: how the engine sizes the buffers of its CUDA graphs, for the docs.
        vocab_maps: what it makes of a draft's map to the target's vocabulary.
        extractions: what makes a target without a draft hand over states.
        launch_defects: faults of a way of launching it.
        unasked: whether a command that is given no engine answers for this one too.
        see_draft: a draft and a version and options to what the engine sees of it.
        adapt: what an option changes about a target class: the rule found for it (None: none) to the rule in force;
            None leaves the class to ``wrappers``, ``no_setter`` and ``no_rule``, ``Instead`` has another class looked
            up, ``Unread`` says that nobody has read what the option does to it.
        spellings: how a list is written.
    """

    name: str
    title: str
    versions: tuple[str, ...]
    options: tuple[EngineOption, ...]
    variants: tuple[VariantRule, ...]
    runner_option: str | None
    key_rules: tuple[KeyRule, ...]
    timings: tuple[Timing, ...]
    classes: tuple[ClassRule, ...]
    no_setter: tuple[NoSetter, ...]
    width_rules: tuple[WidthRule, ...]
    see_draft: Callable[[Draft, str, Mapping[str, str]], DraftSeen]
    adapt: Callable[[ClassRule | None, Mapping[str, str], Target], ClassRule | Instead | Unread | None]
    spellings: tuple[SpellingRule, ...]
    buffer_rules: tuple[BufferRule, ...] = ()
    vocab_maps: tuple[VocabMapRule, ...] = ()
    extractions: tuple[ExtractionRule, ...] = ()
    launch_defects: tuple[LaunchDefect, ...] = ()
    unasked: bool = True
    no_rule: tuple[NoRule, ...] = ()
    wrappers: tuple[Wrapper, ...] = ()
    text_classes: Mapping[str, str] = {}

    def _runner(self, variant: Mapping[str, str]) -> str:
        return variant.get(self.runner_option, "") if self.runner_option else ""

    def key_rule(self, version: str, variant: Mapping[str, str]) -> KeyRule | None:
        """Where a variant looks for the id list; None where that wasn't read in this version."""
        return in_force((r for r in self.key_rules if r.runner in {"", self._runner(variant)}), version)

    def timing(self, version: str, variant: Mapping[str, str]) -> Timing | None:
        """When a variant's failures show; None where that wasn't read in this version."""
        return in_force((r for r in self.timings if r.runner in {"", self._runner(variant)}), version)

    def vocab_map(self, version: str) -> VocabMapRule | None:
        """What it makes of a draft's vocabulary map; None where that wasn't read in this version."""
        return in_force(self.vocab_maps, version)

    def extraction(self, version: str) -> ExtractionRule | None:
        """What makes a target without a draft hand over states; None where nothing is known to."""
        return in_force(self.extractions, version)

    def id_key(self, version: str) -> str | None:
        """The one place for a list that every stock launch reads; None where that wasn't read in this version."""
        rule = in_force(self.spellings, version)
        return None if rule is None else rule.key
