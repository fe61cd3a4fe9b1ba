"""What an engine's own code did, as recorded by ``make check-engines``, held against this project's rules.

The recordings are the fixtures of ``tests/engines/test_recordings.py``, which needs no engine.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from eagle_parity.config_files import ConfigFile
from eagle_parity.dialects import SECTION
from eagle_parity.drafts import IDS, draft_from_config
from eagle_parity.engines.delivery import slots_built
from eagle_parity.engines.draft_rules import FcSkip
from eagle_parity.engines.engine import EngineName
from eagle_parity.engines.failures import FailureKind
from eagle_parity.engines.rules import Engine
from eagle_parity.engines.serving import Served, Unjudged, serve
from eagle_parity.targets import target_from_config
from eagle_parity.versions import known_version, nearest_version
from eagle_parity.wiring import POST_NORM

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eagle_parity.drafts import Draft
    from eagle_parity.engines.draft_rules import DraftSeen
    from eagle_parity.targets import Target

RECORDINGS = Path(__file__).parent / "engines" / "recordings"
SCHEMA_VERSION = 1


class Difference(msgspec.Struct, frozen=True):
    """An engine does one thing and the rules say another.

    Attributes:
        engine: name, version and options.
        rule: which kind of rule, and where the one that was applied was read.
        target_class: as in the target's config.
        about: the ids or the draft's keys.
        recorded: what the engine did.
        ours: what the rules say.
    """

    engine: str
    rule: str
    target_class: str
    about: str
    recorded: str
    ours: str

    def __str__(self) -> str:
        return (
            f"{self.engine}, {self.target_class}, {self.about}\n  rule: {self.rule}\n"
            f"  engine: {self.recorded}\n  rules:  {self.ours}"
        )


class Compared(msgspec.Struct, frozen=True):
    """One line of what was compared.

    Attributes:
        what: the class and its options, or the readings.
        cases: how many id lists or draft configs.
        states: how many of the delivered states were recognised as a boundary.
        outcome: in words: agrees, differs, has no rule, couldn't be run.
        differences: between the engine and the rules.
    """

    what: str
    cases: int
    states: int
    outcome: str
    differences: tuple[Difference, ...] = ()


class Rules(msgspec.Struct, frozen=True):
    """The rules of an engine in the version of a recording.

    Attributes:
        engine: the tables.
        recorded: the version that was run.
        version: whose rules are applied: the same, or the nearest known.
    """

    engine: Engine
    recorded: str
    version: str

    def serve(self, draft: Draft, target: Target, variant: Mapping[str, str]) -> Served | Unjudged:
        """What the rules make of a draft."""
        name = EngineName(self.engine.name, self.recorded, tuple(sorted(variant.items())))
        return serve(self.engine, draft, target, name=name, variant=variant, version=self.version)

    def label(self, variant: Mapping[str, str]) -> str:
        """Engine, version and options."""
        return str(EngineName(self.engine.name, self.recorded, tuple(sorted(variant.items()))))


def rules_for(recording: Mapping[str, Any], engine: Engine) -> Rules:
    """The rules that a recording is held against."""
    recorded = str(recording["version"])
    version = known_version(recorded, engine.versions) or nearest_version(recorded, engine.versions)
    assert version is not None, f"the tables of {engine.name} are empty"
    return Rules(engine, recorded, version)


def read_recording(path: Path) -> dict[str, Any]:
    """A recording.

    Raises:
        ValueError: it has another schema version than this code reads.
    """
    recording: dict[str, Any] = json.loads(path.read_text("utf-8"))
    if recording.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"{path}: schema_version {recording.get('schema_version')}, expected {SCHEMA_VERSION}")
    return recording


def write_recording(recording: Mapping[str, Any], path: Path) -> None:
    """One line a case, so that a difference between two releases is a readable diff."""
    parts = [f" {json.dumps(key)}: {_value(value)}" for key, value in recording.items()]
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")


def _value(value: Any) -> str:
    if not (isinstance(value, list) and value and isinstance(value[0], dict)):
        return json.dumps(value)
    return "[\n" + ",\n".join(_entry(entry) for entry in value) + "\n ]"


def _entry(entry: dict[str, Any]) -> str:
    cases = entry.get("cases")
    if not cases:
        return f"  {json.dumps(entry)}"
    head = json.dumps({key: value for key, value in entry.items() if key != "cases"})
    lines = ",\n".join(f"    {json.dumps(case)}" for case in cases)
    return f'  {head[:-1]}, "cases": [\n{lines}\n  ]}}'


def compare(recording: Mapping[str, Any], engine: Engine) -> list[Compared]:
    """Holds everything in a recording against an engine's rules."""
    rules = rules_for(recording, engine)
    return [_compare_readings(recording, rules), *(_compare_target(entry, rules) for entry in recording["targets"])]


def _compare_readings(recording: Mapping[str, Any], rules: Rules) -> Compared:
    target = _target(recording["reading_target"])
    found: list[Difference] = []
    for reading in recording["readings"]:
        draft = _draft({**recording["draft"], **reading["changes"]})
        served = rules.serve(draft, target, reading["variant"])
        if isinstance(served, Unjudged):
            return Compared("draft configs", len(recording["readings"]), 0, f"no rule: {served.reason}")
        about = f"a draft with {json.dumps(reading['changes'])}"
        for rule, recorded, ours in _reading_differences(reading, served, draft, rules):
            found.append(
                Difference(rules.label(reading["variant"]), rule, str(target.architecture), about, recorded, ours)
            )
    return Compared("draft configs", len(recording["readings"]), 0, _outcome(found), tuple(found))


def _reading_differences(
    reading: Mapping[str, Any], served: Served, draft: Draft, rules: Rules
) -> Iterator[tuple[str, str, str]]:
    """Kind of rule, what was recorded, what the rules say."""
    error = reading["error"]
    seen = rules.engine.see_draft(draft, rules.version, reading["variant"])
    if error is not None or seen.failure is not None:
        if error is None or seen.failure is None or error["type"] not in seen.failure.words:
            yield "drafts that don't load", _told(error), _failure(served)
        return
    uses_aux = served.boundaries != (POST_NORM,)
    if "uses_aux" in reading and bool(reading["uses_aux"]) is not uses_aux:
        yield "use_aux_hidden_state", f"uses aux states: {reading['uses_aux']}", f"uses aux states: {uses_aux}"
    if uses_aux:
        ours = _list_read(served, rules.engine)
        if reading["ids"] != ours:
            yield "keys of the id list", f"reads {reading['ids']}", f"reads {ours}, key {served.key}"
    yield from _width_differences(reading, seen, uses_aux=uses_aux)


def _width_differences(
    reading: Mapping[str, Any], seen: DraftSeen, *, uses_aux: bool
) -> Iterator[tuple[str, str, str]]:
    """As ``_reading_differences``, of fc and of the buffer that CUDA graphs feed it from."""
    if seen.width is None:
        yield "width of fc", f"fc for {reading['fc_slots']} slots", "no rule"
    elif reading["fc_slots"] is None:
        if not (seen.width.skips is FcSkip.WITHOUT_AUX and seen.declines_aux):
            yield f"width of fc ({seen.width.source})", "no fc", f"fc for {slots_built(seen, seen.width)} slots"
    elif reading["fc_slots"] != (built := slots_built(seen, seen.width)):
        yield f"width of fc ({seen.width.source})", f"fc for {reading['fc_slots']} slots", f"fc for {built} slots"
    if "buffer_slots" not in reading or seen.buffer is None or not uses_aux:
        return
    if reading["buffer_slots"] != (held := slots_built(seen, seen.buffer)):
        yield f"buffer of the CUDA graphs ({seen.buffer.source})", f"{reading['buffer_slots']} slots", f"{held} slots"


def _list_read(served: Served, engine: Engine) -> Any:
    """The list as the engine's reader hands it on; vLLM's adds what a key's own rule adds, and its setter nothing."""
    if served.default:
        return None
    return list(served.asked) if engine.name == "vllm" else served.raw


def _compare_target(entry: Mapping[str, Any], rules: Rules) -> Compared:
    target = _target(entry["config"])
    options = ",".join(f"{key}={value}" for key, value in entry["variant"].items())
    what = f"{target.architecture}{f' ({options})' if options else ''}"
    if entry["error"] is not None:
        return Compared(what, 0, 0, f"not run: {_told(entry['error'])}")
    found: list[Difference] = []
    states = 0
    for case in entry["cases"]:
        variant = {**entry["variant"], **case["variant"]}
        served = rules.serve(_draft_with(case["ids"], target), target, variant)
        if isinstance(served, Unjudged):
            return Compared(what, len(entry["cases"]), 0, f"no rule: {served.reason}")
        states += sum(state is not None for state in case.get("delivered") or ())
        for kind, recorded, ours in _case_differences(case, served):
            rule = f"{kind} ({served.source})"
            about = f"ids {case['ids']}"
            found.append(Difference(rules.label(variant), rule, str(target.architecture), about, recorded, ours))
    return Compared(what, len(entry["cases"]), states, _outcome(found), tuple(found))


def _case_differences(case: Mapping[str, Any], served: Served) -> Iterator[tuple[str, str, str]]:
    """Kind of rule, what was recorded, what the rules say."""
    error, failure = case["error"], served.failure
    if error is not None and error["stage"] == "set":
        if failure is None or not failure.at_load or error["type"] not in failure.words:
            yield "setter", _told(error), _failure(served)
        return
    if failure is not None and failure.kind in {FailureKind.NO_SETTER, FailureKind.OUT_OF_RANGE, FailureKind.MALFORMED}:
        yield "setter", f"asks for {case['asked']}", _failure(served)
        return
    if _indices(case["asked"]) != _indices(served.asked):
        yield "setter", f"asks for {case['asked']}", f"asks for {list(served.asked)}"
    delivered = case.get("delivered")
    if delivered is None:
        if failure is None or error["type"] not in failure.words:
            yield "forward", _told(error), f"delivers {list(served.boundaries)}, {_failure(served)}"
        return
    yield from _delivery_differences(case, delivered, served)


def _delivery_differences(
    case: Mapping[str, Any], delivered: list[Any], served: Served
) -> Iterator[tuple[str, str, str]]:
    """As ``_case_differences``, once the layer loop has run to its end."""
    error, failure = case["error"], served.failure
    if delivered != list(served.boundaries):  # a None on either side is a state that is no boundary
        yield "delivery", f"delivers {delivered}", f"delivers {list(served.boundaries)}"
    elif error is not None and failure is None:
        yield "forward", _told(error), "serves"
    elif error is None and failure is not None and failure.kind is FailureKind.EMBEDDING:
        yield "forward", f"delivers {delivered}", _failure(served)
    # A width that only the CUDA graphs stumble over doesn't show here; the readings have it.
    elif error is None and (failure is not None and failure.kind is not FailureKind.WIDTH) is not (
        len(delivered) < _wanted(case)
    ):
        yield "shortfall", f"delivers {len(delivered)} states of {_wanted(case)}", _failure(served)


def _indices(entries: Iterable[object]) -> set[int]:
    """Those that a membership test of a layer's number can find: 2.0 is 2, a text is none."""
    return {int(entry) for entry in entries if isinstance(entry, int | float) and entry == int(entry)}


def _wanted(case: Mapping[str, Any]) -> int:
    """For how many slots the draft of a case is built, see ``_draft_with``."""
    return len(case["ids"] or _DEFAULT)


_DEFAULT = (0, 0, 0)
"""As many as the default has, whatever they are."""


def _draft_with(ids: list[int] | None, target: Target) -> Draft:
    """A draft in which every engine reads these ids, with an fc for as many."""
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
        "num_aux_hidden_states": len(ids or _DEFAULT),
    }
    if ids is not None:
        config |= {IDS: ids, SECTION: {IDS: ids}}
    return _draft(config)


def _draft(config: dict[str, Any]) -> Draft:
    return draft_from_config(ConfigFile("draft.json", Path("draft.json"), None, config))


def _target(config: dict[str, Any]) -> Target:
    return target_from_config(ConfigFile("target.json", Path("target.json"), None, config))


def _told(error: Mapping[str, str] | None) -> str:
    return "no error" if error is None else f"{error['type']} at the stage '{error['stage']}': {error['message']}"


def _failure(served: Served) -> str:
    return f"{served.outcome.value}: {served.failure.words}" if served.failure else served.outcome.value


def _outcome(found: list[Difference]) -> str:
    if not found:
        return "agrees"
    kinds = Counter(difference.rule.partition(" (")[0] for difference in found)
    return "DIFFERS: " + ", ".join(f"{kind} x{count}" for kind, count in kinds.items())
