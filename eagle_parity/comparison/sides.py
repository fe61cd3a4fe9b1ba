"""What is known of the sides before any tensor is compared: their wirings as declared, and that they fit together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from eagle_parity.comparison.measurements import Side
from eagle_parity.errors import InputError, UsageError
from eagle_parity.hidden_states import HiddenStates, LastStateRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.comparison.diff import DiffInputs
    from eagle_parity.comparison.last_state import Settled
    from eagle_parity.comparison.measure import Measured
    from eagle_parity.wiring import BoundaryEntry


def describe_side(
    states: HiddenStates,
    role: str,
    boundaries: tuple[BoundaryEntry, ...] | None,
    *,
    settled: Settled | None,
    num_layers: int | None,
) -> Side:
    """A side as it is declared: by its files, or by the option, which goes before them.

    Raises:
        UsageError: the option names another number of boundaries than the side has slots.
    """
    layout = states.layout
    option = f"--{role}-boundaries"
    declared: list[BoundaryEntry] = list(layout.declared.slots) if layout.declared else [None] * layout.slots
    declared_by = layout.declared_by
    last_state = (layout.declared.last_state if layout.declared else None) or layout.last_state_boundary
    if boundaries is not None:
        if len(boundaries) not in {layout.slots, layout.slots + 1}:
            raise UsageError(
                f"{option}: {len(boundaries)} boundaries for {layout.slots} slots of {states.path}; give one for each "
                "slot, and one more for the last state if you know it"
            )
        declared, declared_by = list(boundaries[: layout.slots]), option
        if len(boundaries) > layout.slots:
            last_state = boundaries[-1]
    return Side(
        role=role,
        slots=layout.slots,
        hidden_size=layout.hidden_size,
        declared=declared,
        declared_by=declared_by,
        last_state_declared=last_state if last_state is not None else _pre_norm(states, num_layers),
        last_state_note=None if settled is None else str(settled),
        last_state_guessed=settled is not None and settled.guessed,
        incomplete=bool(layout.facts.get("incomplete")),
    )


def _pre_norm(states: HiddenStates, num_layers: int | None) -> BoundaryEntry:
    """The boundary of a last state of which a layout only knows that it was taken before the final norm."""
    return num_layers if states.layout.facts.get("last_state_stage") == "pre_norm" else None


def with_measured(side: Side, last_state: Any, unreadable: Sequence[Any], measured: Measured) -> Side:
    """The side with what was measured of it, and all of its files that couldn't be read."""
    files = [*unreadable, *(lost.file for lost in measured.lost if lost.role == side.role)]
    return msgspec.structs.replace(side, last_state=last_state, unreadable=[(f.name, f.reason) for f in files])


def check_hidden_sizes(inputs: DiffInputs) -> None:
    """Whether what was given beside the two sides is of their target; that the sides differ is a finding."""
    expected = inputs.trained.layout.hidden_size
    if expected != inputs.live.layout.hidden_size:
        return
    beside: list[tuple[str, object, int]] = []
    if inputs.reference is not None:
        beside.append(("--reference", inputs.reference.path, inputs.reference.layout.hidden_size))
    if inputs.noise is not None:
        beside.append(("--noise", inputs.noise.path, inputs.noise.layout.hidden_size))
    if inputs.target is not None:
        beside.append(("--target", inputs.target.path, inputs.target.hidden_size))
    for option, path, hidden_size in beside:
        if hidden_size != expected:
            raise InputError(
                path,
                f"its hidden size is {hidden_size}",
                expected=f"{expected}, as both sides have",
                remedy=f"give the same target's with {option}",
            )


def boundaries_of_reference(inputs: DiffInputs) -> tuple[BoundaryEntry, ...]:
    """What each of the reference's states is, slots first; empty without a reference.

    Raises:
        UsageError: the option names another number of boundaries than the reference has states.
        InputError: neither the reference nor the option says it.
    """
    reference = inputs.reference
    if reference is None:
        return ()
    layout = reference.layout
    states = layout.slots + (layout.last_state is LastStateRule.STORED)
    if inputs.reference_boundaries is not None:
        if len(inputs.reference_boundaries) not in {layout.slots, states}:
            raise UsageError(
                f"--reference-boundaries: {len(inputs.reference_boundaries)} boundaries for {states} states of "
                f"{reference.path}"
            )
        return inputs.reference_boundaries
    if layout.declared is None or not layout.declared.known:
        raise InputError(
            reference.path,
            "it doesn't say which boundaries it holds",
            expected="a capture of known boundaries (`eagle-parity capture transformers --boundaries all`)",
            remedy="or name them with --reference-boundaries, e.g. 0-30,post_norm",
        )
    last_state = layout.declared.last_state or layout.last_state_boundary
    return (*layout.declared.slots, *([last_state] if layout.last_state is LastStateRule.STORED else []))
