"""Drafts and targets as the tests of engines, trainers and checks need them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle_parity.config_check import check_config
from eagle_parity.config_files import ConfigFile
from eagle_parity.drafts import IDS, draft_from_config
from eagle_parity.engines import find_engine, parse_engine
from eagle_parity.engines.serving import Served, Unjudged, serve, variants_of
from eagle_parity.results import FailOn
from eagle_parity.targets import target_from_config
from eagle_parity.trained_wiring import TrainedWiring
from eagle_parity.versions import nearest_version
from eagle_parity.wiring import Boundary, Wiring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eagle_parity.drafts import Draft
    from eagle_parity.findings import Finding
    from eagle_parity.results import Result
    from eagle_parity.targets import Target

KIMI_CONFIG: dict[str, Any] = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "text_config": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "num_hidden_layers": 61,
        "hidden_size": 7168,
        "vocab_size": 163840,
    },
}
LLAMA_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "vocab_size": 49152,
}


def draft_config(target: dict[str, Any], **values: Any) -> dict[str, Any]:
    text = target.get("text_config", target)
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": text["hidden_size"],
        "vocab_size": text["vocab_size"],
        **values,
    }


def nested(ids: object, **values: Any) -> dict[str, Any]:
    return {"eagle_config": {"use_aux_hidden_state": True, IDS: ids, **values}}


def top(ids: object) -> dict[str, Any]:
    return {IDS: ids}


def make_draft(config: dict[str, Any]) -> Draft:
    return draft_from_config(ConfigFile("draft.json", Path("draft.json"), None, config))


def make_target(config: dict[str, Any]) -> Target:
    return target_from_config(ConfigFile("target.json", Path("target.json"), None, config))


def target_of(architecture: str, num_layers: int = 61, hidden_size: int = 64) -> Target:
    return make_target(
        {"architectures": [architecture], "num_hidden_layers": num_layers, "hidden_size": hidden_size, "vocab_size": 99}
    )


def draft_of(target: Target, **values: Any) -> Draft:
    return make_draft(
        {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "hidden_size": target.hidden_size,
            "vocab_size": 99,
            **values,
        }
    )


def serve_all(engine: str, draft: Draft, target: Target) -> list[Served | Unjudged]:
    name = parse_engine(engine)
    tables = find_engine(name)
    version = nearest_version(name.version, tables.versions)
    return [
        serve(tables, draft, target, name=name, variant=variant, version=version)
        for variant in variants_of(tables, name, version)
    ]


def serve_one(engine: str, draft: Draft, target: Target) -> Served:
    (served,) = serve_all(engine, draft, target)
    assert isinstance(served, Served), served
    return served


def trained_on(*boundaries: Boundary) -> TrainedWiring:
    return TrainedWiring(Wiring(boundaries), "--trained-boundaries")


def check(
    draft: Draft,
    target: Target,
    *engines: str,
    trained: Sequence[Boundary] | None = None,
    assume_nearest: bool = False,
) -> Result:
    return check_config(
        draft,
        target,
        engines=[parse_engine(text) for text in engines],
        stated=None if trained is None else trained_on(*trained),
        assume_nearest=assume_nearest,
        fail_on=FailOn.ERROR,
    )


def named(result: Result, severity: str = "error") -> list[str]:
    return [finding.name for finding in result.findings if finding.severity.value == severity]


def only(result: Result, name: str) -> Finding:
    (finding,) = [finding for finding in result.findings if finding.name == name]
    return finding
