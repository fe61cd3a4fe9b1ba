"""Does every id name a layer of the target?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check
from eagle_parity.checks.engine_failure import ids_without_a_layer
from eagle_parity.engines.class_rules import readable_ids
from eagle_parity.findings import LAYER_ID_OUT_OF_RANGE
from eagle_parity.wiring import format_boundaries

if TYPE_CHECKING:
    from eagle_parity.checks.check import Outcomes
    from eagle_parity.checks.config_subject import ConfigSubject


def run(subject: ConfigSubject) -> Outcomes:
    """An error where an id silently means another layer, or where no engine was judged and none could read it.

    An engine that fails by it is told by ``engine-failure``.
    """
    for group, cause in subject.by_cause(LAYER_ID_OUT_OF_RANGE):
        served = group.first
        told = [f"index {index} wraps around and boundary {boundary} is served" for index, boundary in served.wrapped]
        told += [f"no layer answers to {words}" for words in ids_without_a_layer(group)]
        yield LAYER_ID_OUT_OF_RANGE.finding(
            f"{group.title} reads {served.key} {list(served.ids or ())}: {'; '.join(told)}. It feeds"
            f" {format_boundaries(served.boundaries)} without a word.",
            evidence=subject.evidence(group, cause),
            remedy=subject.advice(group),
            engine=group.label,
        )
    if subject.read_by_an_engine:
        return
    layers = subject.target.num_layers
    readable = readable_ids(layers)
    for entry in subject.stated:
        outside = [n for n in entry.ids or () if n not in readable]
        if outside:
            yield LAYER_ID_OUT_OF_RANGE.finding(
                f"{entry.key} {list(entry.ids or ())}: {', '.join(map(str, outside))} is no layer of a target with"
                f" {layers} layers in any convention.",
                evidence={"key": entry.key, "ids": list(entry.ids or ()), "outside": outside, "num_layers": layers},
            )


CHECK = Check(
    name="layer-id-range",
    question="Does every id name a layer of the target?",
    emits=(LAYER_ID_OUT_OF_RANGE,),
    needs="an id list and --target",
    run=run,
)
