"""What the tool can find: one entry a name, with its code, usual severity, meaning and remedy.

Names are fixed by the design; a code belongs to one name wherever it arises. Gaps in the numbers are reserved for names
that no check emits yet: what stands here can be found.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCS = "docs/checks.md"
"""Where each finding is explained, in the repository; the anchor is its name."""


class Severity(StrEnum):
    """How much a finding matters; the order is that of ``rank``."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for a note, 2 for an error."""
        return ("note", "warning", "error").index(self.value)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, or worth knowing, with the numbers it rests on.

    Attributes:
        code: the stable code, ``EP201``.
        name: the name that the code stands for, ``spurious-embedding``.
        severity: error, warning or note.
        confidence: 0 to 1; 1 where the finding follows from rules and files alone.
        message: one or two sentences for a person; everything that comes from a file is quoted, never trusted.
        evidence: JSON values: the measured numbers and the thresholds that were applied.
        remedy: what to change.
        docs: the page and anchor where the finding is explained, relative to the tool's repository; an installed
            package has no such file, and ``explain CODE`` prints all of it.
        slot: the slot it is about, if it is about one.
        rank: the tensor-parallel rank it is about, if it is about one.
        engine: the engine it is about, if it is about one, with the options of the variants that it is about:
            ``sglang@0.5.12``, ``vllm@0.32.0:runner=v2``. Without an option it is about every value of it. A served
            wiring has the same name without options, and the options apart.
    """

    code: str
    name: str
    severity: Severity
    confidence: float
    message: str
    evidence: dict[str, Any]
    remedy: str
    docs: str
    slot: int | None = None
    rank: int | None = None
    engine: str | None = None


@dataclass(frozen=True, slots=True)
class FindingKind:
    """An entry of the catalogue.

    Attributes:
        code: stable, ``EP`` and three digits: 1xx configs and engine rules, 2xx live states against trained ones, 3xx
            ranks and live conditions, 5xx shards.
        name: fixed by the design.
        severity: the usual one; a check may state another with ``finding(severity=...)``.
        title: one line.
        why: why it matters, for ``explain``.
        remedy: what to do about it in general; a finding carries the particular remedy.
    """

    code: str
    name: str
    severity: Severity
    title: str
    why: str
    remedy: str

    def finding(
        self,
        message: str,
        *,
        remedy: str = "",
        evidence: Mapping[str, Any] | None = None,
        severity: Severity | None = None,
        confidence: float = 1.0,
        slot: int | None = None,
        rank: int | None = None,
        engine: str | None = None,
    ) -> Finding:
        """A finding of this kind."""
        return Finding(
            code=self.code,
            name=self.name,
            severity=severity or self.severity,
            confidence=confidence,
            message=message,
            evidence=dict(evidence or {}),
            remedy=remedy or self.remedy,
            docs=f"{DOCS}#{self.name}",
            slot=slot,
            rank=rank,
            engine=engine,
        )


def _error(code: str, name: str, title: str, why: str, remedy: str) -> FindingKind:
    return FindingKind(code, name, Severity.ERROR, title, why, remedy)


def _warning(code: str, name: str, title: str, why: str, remedy: str) -> FindingKind:
    return FindingKind(code, name, Severity.WARNING, title, why, remedy)


LAYER_ID_CONVENTION = _error(
    "EP101",
    "layer-id-convention",
    "The served wiring is not the trained one",
    "The same id list means different layers to different engines, versions and target classes: some add one, some "
    "don't, one looks at the first id. The server stays healthy and the text stays right; only acceptance drops.",
    "Write the id list that this engine, in this version, reads as the trained wiring: `eagle-parity ids`.",
)
LAYER_IDS_DEFAULTED = _warning(
    "EP102",
    "layer-ids-defaulted",
    "No id list was found and the engine takes its default",
    "Without a list an engine guesses three layers, usually 2, n//2 and n-3, and logs nothing. A head that was"
    " trained on other layers is fed the wrong states.",
    "Write the id list into the draft config, under the key that the engine reads.",
)
LAYER_IDS_IGNORED = _error(
    "EP103",
    "layer-ids-ignored",
    "The id list stands where this engine does not read it",
    "Engines read different keys: SGLang only eagle_config.eagle_aux_hidden_state_layer_ids, vLLM's second runner only "
    "the top level. A list in the wrong place is ignored without a word and the default is served.",
    "Move the list to the key that the engine reads.",
)
LAYER_ID_OUT_OF_RANGE = _error(
    "EP104",
    "layer-id-out-of-range",
    "An id names no layer of the target",
    "Engines don't check the range: an id that no layer answers to is dropped, wraps to the last layer, or kills the "
    "engine at the first request.",
    "Use ids of layers that the target has.",
)
LAYER_IDS_UNSORTED = _warning(
    "EP105",
    "layer-ids-unsorted",
    "The id list is not in ascending order",
    "Most engines concatenate in the order in which the layers run, whatever the list says, while some trainers keep "
    "the list's order. The head's fc then sees its slots permuted.",
    "Train and serve with an ascending list.",
)
LAYER_IDS_DUPLICATE = _error(
    "EP106",
    "layer-ids-duplicate",
    "An id stands in the list twice",
    "Engines collect layers in a set or by membership: the second mention adds no state, and the concatenation is one "
    "slot short.",
    "Name each layer once.",
)
ENGINE_FAILURE = _error(
    "EP107",
    "engine-failure",
    "The engine refuses to load or dies at a request",
    "What the engine asks for is not what its forward delivers. Some engines notice at load, most at the first request,"
    " with a shape error that names no layer.",
    "Write an id list that the engine can deliver: `eagle-parity ids`.",
)
KNOWN_ENGINE_DEFECT = _warning(
    "EP108",
    "known-engine-defect",
    "This engine version has a known defect on this path",
    "Whatever wiring is asked for, this release is known to feed something else: under some options, or, as an error,"
    " always.",
    "Upgrade the engine, or switch the option off.",
)
UNSUPPORTED_TARGET = _error(
    "EP109",
    "unsupported-target",
    "The engine cannot serve EAGLE-3 on this target, or its states are no boundaries",
    "The target's class has no way to capture hidden states in this version, so the engine refuses the draft; or the "
    "target has no single residual stream (hyper-connections, attention residuals): an engine may well serve it, but "
    "boundaries are not defined, and nothing tells whether it serves what the head was trained on.",
    "Use an engine version that supports this target class.",
)
UNKNOWN_ENGINE_VERSION = _warning(
    "EP110",
    "unknown-engine-version",
    "The rule tables do not know this engine version",
    "Engines changed the meaning of the id list between releases before. A guess from a neighbouring version would be "
    "a guess.",
    "Pass --assume-nearest to judge by the nearest known version, or update eagle-parity.",
)
FC_WIDTH = _error(
    "EP111",
    "fc-width",
    "The head's fc takes another number of slots than the engine feeds it",
    "fc's input width is the number of slots times the target's hidden size. Another number of slots is a shape error "
    "at load or at the first request.",
    "Serve as many layers as the head was trained on.",
)
HIDDEN_SIZE = _error(
    "EP112",
    "hidden-size",
    "The draft was made for a target of another hidden size",
    "fc's input width, or the config's target_hidden_size, doesn't fit the target.",
    "Use the target that the draft was trained for.",
)
VOCAB_SIZE = _error(
    "EP115",
    "vocab-size",
    "The draft's vocabulary is not the target's",
    "vocab_size must be the target's vocabulary, and a draft vocabulary can't be larger than it.",
    "Use the target that the draft was trained for.",
)
VOCAB_MAP_MISSING = _error(
    "EP123",
    "vocab-map-missing",
    "A head of a smaller vocabulary has no map to the target's",
    "Without d2t engines take the head's token k for the target's token k, and no log line tells. Unless the head was "
    "trained on the first tokens of the vocabulary in their order, almost every proposal is another token than it "
    "meant.",
    "Put the map of the training run into the draft's weights as d2t: for each token the target's number less the "
    "head's own.",
)

SPURIOUS_EMBEDDING = _error(
    "EP201",
    "spurious-embedding",
    "A slot holds the token embedding, which the head was not trained on",
    "An id of -1 on an engine that adds one becomes 0, the embedding. The features behind it arrive one slot late, and "
    "every slot is wrong. Acceptance falls to what a unigram guess gives.",
    "Remove the embedding's id and write the trained layers.",
)
MISSING_EMBEDDING = _error(
    "EP202",
    "missing-embedding",
    "The head was trained on the token embedding and is not fed it",
    "The first slot of training was the embedding; the serving side has a layer's output there.",
    "Serve the embedding (boundary 0) where the engine can, or retrain without it.",
)
LAYER_MISMATCH = _error(
    "EP203",
    "layer-mismatch",
    "A slot holds the state of another layer",
    "Neighbouring layers are alike (cosine 0.97 and more), so an off-by-one costs little enough to go unnoticed and is "
    "still not what the head was trained on.",
    "Write the id list that is read as the trained wiring: `eagle-parity ids`.",
)
SLOT_ORDER = _error(
    "EP204",
    "slot-order",
    "The right states in another order",
    "Each slot meets the columns of fc that were trained for another one.",
    "Serve in the trained order; most engines only serve ascending layers, so permute fc's columns or retrain.",
)
SLOT_COUNT = _error(
    "EP205",
    "slot-count",
    "Another number of slots than in training",
    "A slot is missing or extra; fc's width can't fit both.",
    "Serve exactly the trained layers.",
)
SLOT_DUPLICATE = _error(
    "EP206",
    "slot-duplicate",
    "A slot repeats the state of another slot",
    "Two slots hold the same layer, and a trained layer is missing.",
    "Serve each trained layer once.",
)
SHAPE_MISMATCH = _error(
    "EP208",
    "shape-mismatch",
    "The two sides have different shapes",
    "The hidden sizes differ, so the states can't be of the same target, or one side was split wrongly.",
    "Capture the target that the head was trained for.",
)
MISSING_RESIDUAL = _error(
    "EP209",
    "missing-residual",
    "A slot holds a layer's own output without the residual stream",
    "The tap sits on the layer's contribution instead of on the residual stream after it.",
    "Tap the residual stream: hidden plus residual.",
)
NORM_STAGE = _error(
    "EP210",
    "norm-stage",
    "A slot was taken on the other side of a norm",
    "The state is normalised on one side and not on the other.",
    "Take the state before the norm on both sides, or after it on both.",
)
SCALED = _error(
    "EP211",
    "scaled",
    "A slot is the right state times a constant",
    "A scale was applied on one side only, such as an embedding multiplier.",
    "Apply the scale on both sides or on neither.",
)
TOKEN_SHIFT = _error(
    "EP212",
    "token-shift",
    "The rows belong to other positions",
    "Row t holds the state of token t+k. EAGLE pairs states with the next token: a second shift breaks it.",
    "Align the rows with their tokens before the head is fed.",
)
TOKEN_MISMATCH = _error(
    "EP213",
    "token-mismatch",
    "The two sides hold different token ids",
    "Without the same tokens, states can't be compared one by one.",
    "Capture the shards' own token ids: `eagle-parity capture ... --replay SHARDS`.",
)
TRUNCATED_CAPTURE = _error(
    "EP215",
    "truncated-capture",
    "Rows are missing",
    "A sequence has fewer states than tokens, or only a prefix or suffix of the other side's tokens. Prefix caches and "
    "chunked prefill do this.",
    "Capture with prefix caching off and chunks larger than the prompt.",
)
DEAD_DIMENSIONS = _error(
    "EP218",
    "dead-dimensions",
    "Dimensions of a state are zero throughout",
    "A layer's output has no such dimensions: a buffer that was never filled, a slot that was never written.",
    "Look at what writes this slot: the layer's hook, the offset into the buffer, the kernel's mask.",
)
NON_FINITE = _error(
    "EP219",
    "non-finite",
    "NaN or infinity",
    "A head fed NaN accepts nothing, and one trained on NaN is spoilt.",
    "Find the step that overflows: half precision, a kernel, a truncated file.",
)
PRECISION_DRIFT = _warning(
    "EP222",
    "precision-drift",
    "The same layer, with more noise than rounding makes",
    "Both sides are the same boundary, by margin, but further apart than the noise floor allows: a quantised target, a "
    "kernel of lower precision.",
    "Give a second live capture with --noise, or capture the target in the precision that it is served in.",
)
UNEXPLAINED_DIFFERENCE = _error(
    "EP224",
    "unexplained-difference",
    "The states differ and no known fault explains it",
    "The distance is above the noise floor, and every hypothesis that could be tried leaves it there.",
    "Give more to compare with: --reference, --target; then report the case.",
)

DISTRIBUTION_DRIFT = _warning(
    "EP225",
    "distribution-drift",
    "The numbers of some dimensions are distributed otherwise",
    "Two parts of a set are further apart than parts of it that are chosen at random: other texts, another target,"
    " another layer, or another release that wrote them.",
    "Look at what changed between the parts: the source of the texts first, then the writer and its options.",
)

RANK_PARTIAL = _error(
    "EP301",
    "rank-partial",
    "Each rank holds a partial sum of the state",
    "The states were taken before the ranks' sums were put together: the sum over the ranks, or that less the residual "
    "stream which each of them has, is the state. The head on each rank is fed something else than it was trained on.",
    "Take the states behind the all-reduce: an engine release that does, or no fusion of the all-reduce with the next"
    " layer.",
)
RANK_SHARDED = _error(
    "EP302",
    "rank-sharded",
    "Each rank holds a share of the state",
    "The ranks' concatenation, of hidden dimensions or of tokens, is the state. A head that is fed one share sees a "
    "part of what it was trained on.",
    "Gather the shares before the head is fed, or switch the sharding of sequences off.",
)
RANK_DIVERGENCE = _error(
    "EP303",
    "rank-divergence",
    "Ranks that compute the same rows differ",
    "Ranks of one tensor-parallel group hold the same rows, bit for bit. Where they don't, each drafts and verifies"
    " something else: acceptance drops, and what the first rank answers isn't what the others computed.",
    "Find what the ranks don't share: sampled tokens, a seed, a kernel's choice, memory that was used again.",
)
RANK_MISSING = _error(
    "EP304",
    "rank-missing",
    "A rank of a group recorded nothing, or less than the others",
    "A fault of one rank shows on that rank alone.",
    "See the server's log for the hook's messages on that rank, and capture again.",
)
DRAFT_INPUT_MISMATCH = _error(
    "EP305",
    "draft-input-mismatch",
    "What the head's fc got isn't the slots side by side",
    "Between target and head something changes the states: another order, another layer, rows of another batch.",
    "Compare the chunks with the slots in the evidence: what differs is done between the target and the head.",
)
RULE_CONTRADICTED = _error(
    "EP306",
    "rule-contradicted",
    "The running target captures other layers than the rule says",
    "The rule tables say which layers a release serves for a draft. The running module says another thing, and it is"
    " right: the engine is patched, or the rule is wrong.",
    "Name a patched engine as such. Otherwise report the release and the draft's config: the table needs a correction.",
)
CAPTURE_INCOMPLETE = _error(
    "EP307",
    "capture-incomplete",
    "The capture doesn't hold everything that was sent",
    "What is missing wasn't judged.",
    "Do what the reasons say, and capture again.",
)
PREFIX_DEPENDENT = _error(
    "EP308",
    "prefix-dependent",
    "A sequence's states depend on what it is computed with",
    "The same tokens give other states in a batch, in chunks or behind a cached prefix, by more than rounding. A head"
    " that was trained on sequences computed alone meets them in production.",
    "Compare the positions with the chunks' and the cached prefix's ends; look at padding, positions and the cache.",
)

UNREADABLE_SHARD = _error(
    "EP501",
    "unreadable-shard",
    "A file can't be read",
    "Truncated, corrupt, unsafe or of an unknown layout. The others were read.",
    "Make the file again, or remove it.",
)
ROW_COUNT = _error(
    "EP502",
    "row-count",
    "A sequence has another number of states than of tokens",
    "Which state belongs to which token can't be known: the head would be trained on pairs that don't belong together.",
    "Make the file again; a writer that was stopped leaves such ones.",
)
MIXED_LAYOUT = _error(
    "EP503",
    "mixed-layout",
    "The files of one set are of several layouts",
    "Other layouts, numbers of slots, hidden sizes or dtypes in one folder are the outputs of several runs. A trainer"
    " reads one of them, or takes the last state of one for a slot of the other.",
    "Keep each run's files in a folder of their own.",
)
EMPTY_MASK = _warning(
    "EP504",
    "empty-mask",
    "A sequence's loss mask leaves no token to train on",
    "The sequence is computed and read in every epoch and teaches nothing. Where many are like that, the chat template"
    " or the assistant's mark doesn't fit the data.",
    "Look at the template by which the mask was made.",
)
DUPLICATE_SEQUENCE = _warning(
    "EP505",
    "duplicate-sequence",
    "Sequences of equal token ids",
    "They weigh more than the others, and one that is in the evaluation too makes that too good.",
    "Remove them, or say that it is meant.",
)
MISDECLARED_WIRING = _error(
    "EP506",
    "misdeclared-wiring",
    "The declared wiring is not what the states are",
    "The manifest, the trainer's rule or the command line says one thing, the measurement another.",
    "Trust the measurement, and correct the declaration.",
)

FINDINGS: tuple[FindingKind, ...] = (
    LAYER_ID_CONVENTION,
    LAYER_IDS_DEFAULTED,
    LAYER_IDS_IGNORED,
    LAYER_ID_OUT_OF_RANGE,
    LAYER_IDS_UNSORTED,
    LAYER_IDS_DUPLICATE,
    ENGINE_FAILURE,
    KNOWN_ENGINE_DEFECT,
    UNSUPPORTED_TARGET,
    UNKNOWN_ENGINE_VERSION,
    FC_WIDTH,
    HIDDEN_SIZE,
    VOCAB_SIZE,
    VOCAB_MAP_MISSING,
    SPURIOUS_EMBEDDING,
    MISSING_EMBEDDING,
    LAYER_MISMATCH,
    SLOT_ORDER,
    SLOT_COUNT,
    SLOT_DUPLICATE,
    SHAPE_MISMATCH,
    MISSING_RESIDUAL,
    NORM_STAGE,
    SCALED,
    TOKEN_SHIFT,
    TOKEN_MISMATCH,
    TRUNCATED_CAPTURE,
    DEAD_DIMENSIONS,
    NON_FINITE,
    PRECISION_DRIFT,
    UNEXPLAINED_DIFFERENCE,
    DISTRIBUTION_DRIFT,
    RANK_PARTIAL,
    RANK_SHARDED,
    RANK_DIVERGENCE,
    RANK_MISSING,
    DRAFT_INPUT_MISMATCH,
    RULE_CONTRADICTED,
    CAPTURE_INCOMPLETE,
    PREFIX_DEPENDENT,
    UNREADABLE_SHARD,
    ROW_COUNT,
    MIXED_LAYOUT,
    EMPTY_MASK,
    DUPLICATE_SEQUENCE,
    MISDECLARED_WIRING,
)

BY_NAME: Mapping[str, FindingKind] = {kind.name: kind for kind in FINDINGS}
BY_CODE: Mapping[str, FindingKind] = {kind.code: kind for kind in FINDINGS}
