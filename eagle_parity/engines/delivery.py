"""From the indices that a target class is asked for to the states that the draft gets, or to what fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from eagle_parity.drafts import Draft, look_up
from eagle_parity.engines.class_rules import AtEmbedding, Captures, ClassRule, Defect, Order, Outside, Shortfall
from eagle_parity.engines.draft_rules import BufferRule, DraftSeen, FcSkip, WidthRule
from eagle_parity.engines.failures import Failure, FailureKind, Timing
from eagle_parity.targets import Target
from eagle_parity.wiring import EMBEDDING, POST_NORM, BoundaryEntry

if TYPE_CHECKING:
    from collections.abc import Sequence


class Delivery(msgspec.Struct, frozen=True):
    """What a forward hands over.

    Attributes:
        boundaries: in concatenation order; the embedding also where asking for it is an error.
        wrapped: asked indices that wrap around, with the boundary delivered for them.
        lost: the first index that is an error at load, if one is.
        broken: the first index at which the forward dies by the class's own fault, if it does.
    """

    boundaries: tuple[BoundaryEntry, ...]
    wrapped: tuple[tuple[int, int], ...] = ()
    lost: int | None = None
    broken: int | None = None


def deliver(rule: ClassRule, asked: Sequence[int | None], num_layers: int) -> Delivery:
    """Which of the asked indices the forward delivers, and in which order.

    Where it hands over what is no boundary, the entry is None.
    """
    if rule.captures is Captures.NOTHING:
        return Delivery(())
    if rule.outside is Outside.UNWRITTEN:
        return Delivery(_every_slot(rule, asked, num_layers))
    last = num_layers if rule.reaches_last else num_layers - 1
    first = 1 if rule.embedding is AtEmbedding.LOOKUP_ERROR else EMBEDDING
    given: list[int] = []
    wrapped: list[tuple[int, int]] = []
    lost: int | None = None
    for index in asked:
        if index is None:
            continue
        if first <= index <= last:
            given.append(index)
        elif rule.outside is Outside.FLAGS_BY_INDEX and -num_layers <= index < 0:
            wrapped.append((index, num_layers + index))
            given.append(num_layers + index)
        elif rule.outside is not Outside.NEVER_MATCHES and lost is None:
            lost = index
    unique = list(dict.fromkeys(given))
    if rule.order is Order.ASCENDING:
        unique.sort()
    return _handed_over(rule, unique, tuple(wrapped), lost)


def _handed_over(
    rule: ClassRule, indices: Sequence[int], wrapped: tuple[tuple[int, int], ...], lost: int | None
) -> Delivery:
    """What comes of the indices that a layer answers to."""
    if rule.captures is Captures.ATTRIBUTE_ERROR and indices:
        return Delivery((), wrapped, lost, min(indices))
    if rule.captures is Captures.BRANCH:
        return Delivery(tuple(index if index == EMBEDDING else None for index in indices), wrapped, lost)
    return Delivery(tuple(indices), wrapped, lost)


def _every_slot(rule: ClassRule, asked: Sequence[int | None], num_layers: int) -> tuple[BoundaryEntry, ...]:
    """One slot for each asked index, in ascending order; None where no layer answers, so that nothing is written."""
    indices = sorted({index for index in asked if index is not None})
    if rule.embedding is AtEmbedding.FINAL_NORM_LAST and indices[:1] == [EMBEDDING]:
        indices.append(indices.pop(0))
    named: dict[int, BoundaryEntry] = {index: index for index in range(1, num_layers + 1)} | {EMBEDDING: POST_NORM}
    return tuple(named.get(index) for index in indices)


class Fit(msgspec.Struct, frozen=True):
    """What the states that a target hands over have to fit.

    Attributes:
        seen: the draft as the engine sees it.
        width: how its class sizes fc.
        draft: the draft, for its own widths.
        target: the target, for the width of a state.
        timing: when failures show.
    """

    seen: DraftSeen
    width: WidthRule
    draft: Draft
    target: Target
    timing: Timing

    @property
    def built(self) -> int:
        """For how many slots fc is built."""
        return slots_built(self.seen, self.width)

    @property
    def draft_width(self) -> int:
        """The width of the draft's embedding: the target's, where its config states none."""
        return self.draft.hidden_size or self.target.hidden_size

    def as_wide_as_the_draft(self, count: int) -> bool:
        """Whether so many states are together as wide as the draft's embedding."""
        return count * self.target.hidden_size == self.draft_width

    def past_fc(self, count: int) -> bool:
        """Whether the draft's class hands so many states on without calling fc."""
        if self.width.skips is FcSkip.WITHOUT_AUX:
            return self.seen.declines_aux
        return self.width.skips is FcSkip.EQUAL_WIDTH and self.as_wide_as_the_draft(count)

    def defects(self, count: int) -> tuple[Defect, ...]:
        """The defect that shows where aux states go past fc and nothing notices."""
        if self.width.skipped is None or not self.past_fc(count) or not self.as_wide_as_the_draft(count):
            return ()
        return (self.width.skipped,)


def judge_delivery(rule: ClassRule, asked: Sequence[int | None], delivery: Delivery, fit: Fit) -> Failure | None:
    """Whether the states that are delivered fit what the forward and the draft's fc expect, first failure first."""
    boundaries, timing = delivery.boundaries, fit.timing
    if delivery.lost is not None:
        error = "IndexError" if rule.outside is Outside.FLAGS_BY_INDEX else "KeyError"
        return Failure(
            FailureKind.OUT_OF_RANGE, at_load=True, words=f"{error} at load: index {delivery.lost} is no layer"
        )
    stored = fit.draft.fc_slots(fit.target.hidden_size)
    if stored is not None and stored != fit.built:
        words = f"fc is built for {fit.built} slots ({fit.width.source}) and the weights hold one for {stored}"
        return Failure(FailureKind.WIDTH, at_load=True, words=f"shape error at load: {words}")
    if delivery.broken is not None:
        return Failure(
            FailureKind.CAPTURE,
            at_load=timing.embedding,
            words=f"AttributeError in the target's forward at index {delivery.broken}, as at any other: its loop reads"
            " what the class never sets",
            remark=timing.remark,
        )
    if EMBEDDING in boundaries and rule.embedding is AtEmbedding.TYPE_ERROR:
        return Failure(
            FailureKind.EMBEDDING,
            at_load=timing.embedding,
            words="TypeError in the target's forward at index 0: hidden_states + residual, residual is None",
            remark=timing.remark,
        )
    if not boundaries:
        return Failure(
            FailureKind.MISSING_STATE,
            at_load=timing.nothing,
            words="no state is captured at all, and the forward's result can't be unpacked",
            remark=timing.remark,
        )
    if len(boundaries) < len(asked) and rule.shortfall is not Shortfall.DRAFT_FC:
        error = "AssertionError" if rule.shortfall is Shortfall.PACKER_ASSERT else "RuntimeError"
        count = f"{len(boundaries)} of {len(asked)}"
        return Failure(
            FailureKind.MISSING_STATE,
            at_load=timing.shortfall,
            words=f"{error} in the target's forward: captured {count} aux hidden states",
            remark=timing.remark,
        )
    return judge_width(fit, len(boundaries), len(asked))


def judge_width(fit: Fit, count: int, asked: int) -> Failure | None:
    """Whether ``count`` states of ``asked`` fit the draft's fc, or its layer where they go past fc."""
    if fit.past_fc(count):
        if not fit.as_wide_as_the_draft(count):
            return Failure(
                FailureKind.DRAFT,
                at_load=fit.timing.shortfall,
                words=f"use_aux_hidden_state is false, so the draft hands on what it gets without fc ({count} states"
                f" of {fit.target.hidden_size}), which doesn't fit a layer of {fit.draft_width}"
                f" ({fit.width.source})",
                remark=fit.timing.remark,
            )
    elif count != fit.built:
        given = f"{count} of {asked} states are captured" if count < asked else f"{count} states are captured"
        if not fit.seen.uses_aux:
            given = "the target hands over its final state alone (use_aux_hidden_state is false)"
        return Failure(
            FailureKind.MISSING_STATE if count < asked else FailureKind.WIDTH,
            at_load=fit.timing.shortfall,
            words=f"shape error in the draft's fc: {given}, fc is built for {fit.built} ({fit.width.source})",
            remark=fit.timing.remark,
        )
    buffer = fit.seen.buffer
    if buffer is None or not fit.seen.uses_aux:
        return None
    held = slots_built(fit.seen, buffer)
    if held == fit.built or fit.past_fc(held):
        return None
    return Failure(
        FailureKind.WIDTH,
        at_load=True,
        words=f"shape error while the draft-extend CUDA graphs are captured: their buffer holds {held} slots"
        f" ({buffer.source}), fc is built for {fit.built}",
        remark="which attention backends have these graphs depends on the release; with --disable-cuda-graph there are"
        " none, and it serves",
    )


def slots_built(seen: DraftSeen, rule: WidthRule | BufferRule) -> int:
    """How many slots a rule makes of the draft's config."""
    for key in rule.keys:
        value = look_up(seen.config, key)
        if isinstance(value, bool):
            continue
        if isinstance(value, int):
            return value
        if isinstance(value, list | str) and value:
            return len(value)
    return rule.fallback
