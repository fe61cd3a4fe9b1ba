"""``check-config`` as a library: a draft, a target, engines and the trained wiring in, a result out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.config_subject import ConfigSubject, Evaluation
from eagle_parity.checks.of_configs import CONFIG_CHECKS
from eagle_parity.drafts import DEFAULT_SLOTS, Family
from eagle_parity.engines.resolved import resolve_engines
from eagle_parity.engines.serving import serve, variants_of
from eagle_parity.errors import InputError, UsageError
from eagle_parity.hidden_states import LastStateRule
from eagle_parity.quoting import plain
from eagle_parity.results import FailOn, Input, LastStates, WiringSummary, conclude
from eagle_parity.targets import TARGET_FORMAT, refuse_beyond
from eagle_parity.trained_wiring import TrainedWiring
from eagle_parity.wiring import POST_NORM, Wiring, format_boundaries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eagle_parity.drafts import Draft
    from eagle_parity.engines.engine import EngineName
    from eagle_parity.engines.resolved import Resolved
    from eagle_parity.hidden_states import Layout
    from eagle_parity.results import Result
    from eagle_parity.targets import Target
    from eagle_parity.wiring import Boundary

COMMAND = "check-config"


def evaluate(resolved: Resolved, draft: Draft, target: Target) -> Evaluation:
    """What every variant of an engine makes of a draft; nothing where its version isn't known or assumed."""
    engine, name, version = resolved.engine, resolved.name, resolved.version
    if version is None or draft.family is not Family.EAGLE3:
        return Evaluation(resolved, ())
    served = tuple(
        serve(engine, draft, target, name=name, variant=variant, version=version)
        for variant in variants_of(engine, name, version)
    )
    return Evaluation(resolved, served)


def stated_wiring(
    draft: Draft,
    target: Target,
    *,
    trainer: str | None = None,
    boundaries: Sequence[Boundary] | None = None,
) -> TrainedWiring | None:
    """The trained wiring that a command line states.

    Args:
        draft: one entry more than it has slots names the last state.
        target: boundaries beyond its layers are refused.
        trainer: ``--trained-with``.
        boundaries: ``--trained-boundaries``.

    Raises:
        UsageError: both are given and differ, or a boundary isn't the target's.
    """
    by_trainer = None
    if trainer is not None:
        from eagle_parity.trainers import trained_with

        by_trainer = trained_with(trainer, draft, target)
    if boundaries is None:
        return by_trainer
    refuse_beyond(boundaries, target, option="--trained-boundaries")
    slots = slots_of(draft, target)
    # A list that lost an id looks the same: without fc's width only a last boundary can be meant as the last state.
    known = draft.fc_slots(target.hidden_size) is not None or boundaries[-1] in {target.num_layers, POST_NORM}
    if len(boundaries) == slots + 1 and known:
        wiring = Wiring(tuple(boundaries[:slots]), boundaries[slots])
    else:
        wiring = Wiring(tuple(boundaries))
    by_user = TrainedWiring(wiring, "--trained-boundaries")
    if by_trainer is not None and by_trainer.wiring.slots != wiring.slots:
        raise UsageError(
            f"--trained-boundaries says {format_boundaries(wiring.slots)} and --trained-with"
            f" {format_boundaries(by_trainer.wiring.slots)} ({by_trainer.source}): leave one of them out"
        )
    return by_user


def slots_of(draft: Draft, target: Target) -> int:
    """How many slots a draft has, as far as it says: by fc, else by its lists, else three."""
    counted = draft.fc_slots(target.hidden_size)
    if counted is not None:
        return counted
    return next((len(entry.ids) for entry in draft.id_lists if entry.ids), DEFAULT_SLOTS)


def wiring_of_shards(layout: Layout, path: str, slots: int) -> TrainedWiring | None:
    """The wiring that shards state themselves; None where they state none.

    Where the final state may be the last state or a slot, the draft's number of slots decides.
    """
    declared = layout.declared
    if declared is None:
        return None
    if layout.last_state is LastStateRule.UNDECIDED and len(declared.slots) == slots + 1:
        declared = Wiring(declared.slots[:-1], declared.slots[-1])
    return TrainedWiring(declared, f"{plain(path)}: {layout.declared_by or layout.format}")


def check_config(
    draft: Draft,
    target: Target,
    *,
    engines: Iterable[EngineName] = (),
    stated: TrainedWiring | None = None,
    shards: tuple[str, Layout] | None = None,
    not_trained_so: str | None = None,
    assume_nearest: bool = False,
    fail_on: FailOn = FailOn.ERROR,
) -> Result:
    """Checks a draft's config against a target, engines and a trained wiring.

    Args:
        draft: see ``read_draft``.
        target: see ``read_target``.
        engines: what serves, or is going to; an engine that is named twice is judged once.
        stated: the trained wiring as the command line states it, see ``stated_wiring``.
        shards: path and layout of training shards; what they state themselves is believed before what is stated.
        not_trained_so: why the trainer that was named can't have trained this draft.
        assume_nearest: judge an unknown version by the nearest known one.
        fail_on: see ``conclude``.
    """
    by_shards = None if shards is None else wiring_of_shards(shards[1], shards[0], slots_of(draft, target))
    trained = by_shards or stated
    subject = ConfigSubject(
        draft=draft,
        target=target,
        trained=trained,
        engines=tuple(
            evaluate(resolved, draft, target) for resolved in resolve_engines(engines, assume_nearest=assume_nearest)
        ),
        shards=None if shards is None else shards[1],
        declared=stated,
        not_trained_so=not_trained_so,
    )
    served = [s for evaluation in subject.engines for s in evaluation.judged]
    return conclude(
        COMMAND,
        outcomes=[outcome for check in CONFIG_CHECKS for outcome in check.run(subject)],
        judged=bool(served) and trained is not None,
        fail_on=fail_on,
        inputs=_inputs(draft, target, shards),
        wiring=WiringSummary(
            num_layers=target.num_layers,
            trained=None if trained is None else list(trained.wiring.slots),
            last_state=LastStates(trained=None if trained is None else trained.wiring.last_state),
            served=[s.summary() for s in served],
        ),
        measurements={
            **({} if trained is None else {"trained_by": trained.source}),
            "target_class": target.architecture,
            "draft_family": draft.family.value,
            "draft_dialect": draft.dialect.value,
        },
    )


def _inputs(draft: Draft, target: Target, shards: tuple[str, Layout] | None) -> list[Input]:
    inputs = [
        Input(
            role="draft",
            path=draft.path,
            format=draft.format,
            slots=draft.fc_slots(target.hidden_size),
            hidden_size=draft.hidden_size,
        ),
        Input(role="target", path=target.path, format=TARGET_FORMAT, hidden_size=target.hidden_size),
    ]
    if shards is not None:
        path, layout = shards
        inputs.append(
            Input(role="trained", path=path, format=layout.format, slots=layout.slots, hidden_size=layout.hidden_size)
        )
    return inputs


def read_shards(path: str) -> Layout:
    """The layout of training shards.

    Raises:
        InputError: nothing there can be read.
    """
    # Only where shards are given: a config alone needs no reader.
    from eagle_parity.readers import describe_shards

    try:
        return describe_shards(path)
    except OSError as error:
        raise InputError(path, error.strerror or str(error), expected="a folder of training shards") from error
