"""Do the tables know the engine's version?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle_parity.checks.check import Check
from eagle_parity.findings import UNKNOWN_ENGINE_VERSION
from eagle_parity.results import Skip

if TYPE_CHECKING:
    from eagle_parity.checks.check import Outcomes
    from eagle_parity.checks.config_subject import ConfigSubject
    from eagle_parity.engines.resolved import Resolved

NAME = "engine-version"


def run(subject: ConfigSubject) -> Outcomes:
    """A warning for each unknown version, and a skip that blocks the verdict unless the nearest one was assumed."""
    if not subject.engines:
        yield Skip(
            check=NAME,
            reason="no engine is named, so nothing was served: pass --engine, such as sglang@0.5.12 or vllm@0.32.0",
            blocks_verdict=True,
        )
    for evaluation in subject.engines:
        yield from unknown_version(evaluation.resolved)


def unknown_version(resolved: Resolved) -> Outcomes:
    """Nothing where the version is known; else a warning, and a skip that blocks the verdict unless one was assumed."""
    if resolved.nearest is None:
        return
    engine, name = resolved.engine, resolved.name
    known = f"{engine.versions[0]} to {engine.versions[-1]}" if len(engine.versions) > 1 else engine.versions[0]
    assumed = resolved.version is not None
    judged = f"it was judged by the rules of {resolved.nearest}" if assumed else "it was not judged"
    yield UNKNOWN_ENGINE_VERSION.finding(
        f"{engine.title} {name.version} is not in the tables, which know {known}; {judged}.",
        evidence={"known": list(engine.versions), "nearest": resolved.nearest, "assumed": assumed},
        remedy="" if not assumed else "Update eagle-parity, or check the rule against the engine's source.",
        engine=str(name),
    )
    if not assumed:
        yield Skip(
            check=NAME,
            reason=f"{name}: no rules for this version; --assume-nearest judges it by {resolved.nearest}",
            blocks_verdict=True,
        )


CHECK = Check(
    name=NAME,
    question="Do the rule tables know the engine's version?",
    emits=(UNKNOWN_ENGINE_VERSION,),
    needs="--engine",
    run=run,
)
