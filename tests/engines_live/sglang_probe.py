"""Runs SGLang's own code on CPU and records what it does with a draft's id list.

Runs in SGLang's environment with ``stand_ins`` on the path: ``python sglang_probe.py GRID MODELS OUTPUT``. Real: the
server's arguments, the reader of the draft's config, what sizes fc and its buffer, the target's setter, and its
forward over one prompt in the runner that SGLang's own benchmark uses. Not run: a server, speculation itself, more than
one rank. Each target and each draft has a process of its own, forked after the imports, as SGLang keeps its
configuration in globals. What differs from release to release is in the modules ``sglang_published`` and
``sglang_in_runner``; the recording says which one it was made with.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Before SGLang is imported, which reads them then.
os.environ.update(SGLANG_USE_CPU_ENGINE="1", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
sys.path.insert(0, str(Path(__file__).resolve().parent / "stand_ins"))

import tiny_targets
import torch
from failures import Stages, refuses
from sglang.srt.models.registry import ModelRegistry
from sglang.srt.server_args import PortArgs

# The releases' ways to start a runner, told apart by what they have.
try:
    from sglang.srt.runtime_context import SpawnRanks  # noqa: F401  whether it is there is what is asked
except ImportError:
    import sglang_in_runner as release
else:
    import sglang_published as release

if TYPE_CHECKING:
    from collections.abc import Callable

runner_of_one_batch = release.runner_of_one_batch
torch.set_num_threads(1)
# The targets have no tokenizer and the prompt is token ids.
runner_of_one_batch.get_tokenizer = lambda *_args, **_kwargs: None

FLAG = "_is_layer_to_capture"
"""Set on layers by the setters of some classes, and never cleared: in a server they are called once."""


def in_a_process_of_its_own(work: Callable[[], Any]) -> Any:
    """The JSON that ``work`` returns, made in a fork.

    Raises:
        RuntimeError: the fork died; what it said went to stderr.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        code = 1
        try:
            with os.fdopen(writing, "w") as pipe:
                json.dump(work(), pipe)
            code = 0
        except BaseException:  # noqa: BLE001  a fork must not run its parent's code any further
            sys.excepthook(*sys.exc_info())
        os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"a forked part of the recording ended with status {status}")
    return json.loads(text)


def started(target: Path, **settings: Any) -> Any:
    """Server arguments as a scheduler process has them."""
    return release.start(
        {
            "model_path": str(target),
            "device": "cpu",
            "skip_tokenizer_init": True,
            "dtype": "float32",
            "mem_fraction_static": 0.3,
            "max_total_tokens": 256,
            "log_level": "critical",
            # Named one by one because "attention_backend" is turned into torch_native on a CPU without AMX, and some
            # classes refuse that.
            "prefill_attention_backend": "intel_amx",
            "decode_attention_backend": "intel_amx",
            **release.WITHOUT_GRAPHS,
            **settings,
        }
    )


def record_reading(base: dict[str, Any], changes: dict[str, Any], draft: Path, target: Path) -> dict[str, Any]:
    """One draft config through the server's arguments, the reader, and what sizes fc and its buffer."""
    (draft / "config.json").write_text(json.dumps({**base, **changes}), "utf-8")
    stages, record = Stages(), {"variant": {}, "changes": changes}
    with stages.at("config"):
        arguments = started(
            target,
            speculative_algorithm="EAGLE3",
            speculative_draft_model_path=str(draft),
            speculative_num_steps=3,
            speculative_eagle_topk=1,
            speculative_num_draft_tokens=4,
        )
    if stages.error is None:
        with stages.at("read"):
            found = release.read(arguments)
            record["ids"] = found.eagle_aux_hidden_state_layer_ids
            record["uses_aux"] = found.eagle_use_aux_hidden_state
    if stages.error is None:
        with stages.at("draft"):
            config, width = release.ready_for_a_draft(arguments, found)
            record["buffer_slots"] = width // tiny_targets.HIDDEN
            settings = config.hf_config
            draft_class, _ = ModelRegistry.resolve_model_cls(settings.architectures)
            fc = draft_class(settings).model.fc
            record["fc_slots"] = fc.weight.shape[-1] // tiny_targets.HIDDEN
    return {**record, "error": stages.error}


def record_target(architecture: str, models: Path, id_lists: list[Any], *, replace_mlp: bool) -> dict[str, Any]:
    """Every id list on one class, loaded once."""
    folder = models / architecture
    tiny_targets.write_target(architecture, folder)
    boundaries = tiny_targets.boundaries_by_transformers(architecture, folder, replace_mlp=replace_mlp)
    stages = Stages()
    record: dict[str, Any] = {
        "config": tiny_targets.config_facts(folder),
        "variant": {},
        "replaced": ["attention", "mlp"] if replace_mlp else ["attention"],
        "least_separation": round(tiny_targets.least_separation(boundaries), 3),
        "cases": [],
    }
    with stages.at("load"):
        arguments = started(folder)
        runner, _ = runner_of_one_batch.load_model(arguments, PortArgs.init_new(arguments), 0, 0)
        target = runner.torch_runner.model
        record["loaded_class"] = type(target).__name__
        for index, layer in enumerate(target.model.layers):
            tiny_targets.leave_out_attention(layer)
            if replace_mlp:
                tiny_targets.mlp_of(layer).forward = tiny_targets.linear_mlp(index)
        for ids in id_lists:
            record["cases"].append(record_delivery(ids, runner, target, boundaries))
            if refuses(record["cases"]):
                break
    return {**record, "error": stages.error}


def record_delivery(ids: Any, runner: Any, target: Any, boundaries: dict[str, Any]) -> dict[str, Any]:
    """One id list through the setter and the target's forward."""
    stages, record = Stages(), {"variant": {}, "ids": ids}
    inner = target.model
    for layer in inner.layers:
        layer.__dict__.pop(FLAG, None)
    with stages.at("set"):
        release.set_layers(target, ids)
        record["asked"] = list(inner.layers_to_capture)
    if stages.error is None:
        runner.clear()
        outputs: list[Any] = []
        hook = inner.register_forward_hook(lambda _module, _args, output: outputs.append(output))
        prompt = [tiny_targets.prompt().tolist()]
        requests = runner_of_one_batch.prepare_synthetic_inputs_for_latency_test(1, tiny_targets.TOKENS, prompt)
        with stages.at("forward"):
            runner.extend(requests)
        hook.remove()
        if outputs:
            record["delivered"] = [tiny_targets.name_of(state, boundaries) for state in _states(outputs[0])]
    return {**record, "error": stages.error}


def _states(output: Any) -> list[torch.Tensor]:
    """A list of states, or one tensor that holds them side by side, or none where the bare last state came."""
    if not isinstance(output, tuple):
        return []
    states = output[1]
    return list(states.split(tiny_targets.HIDDEN, dim=-1)) if isinstance(states, torch.Tensor) else list(states)


def main() -> None:
    grid_file, models, output = (Path(argument) for argument in sys.argv[1:4])
    grid = json.loads(grid_file.read_text("utf-8"))
    reference = grid["reading_target"]
    in_a_process_of_its_own(partial(tiny_targets.write_target, reference, models / reference))
    draft = models / "draft"
    draft.mkdir(parents=True, exist_ok=True)
    readings = []
    for changes in grid["draft_changes"]:
        reading = partial(record_reading, grid["draft"], changes, draft, models / reference)
        readings.append(in_a_process_of_its_own(reading))
    targets = []
    for architecture in grid["sglang_targets"]:
        print(f"sglang: {architecture}", file=sys.stderr, flush=True)
        replace_mlp = architecture in grid["replace_mlp"]["sglang"]
        recording = partial(record_target, architecture, models, grid["id_lists"], replace_mlp=replace_mlp)
        targets.append(in_a_process_of_its_own(recording))
    result = {
        "schema_version": 1,
        "engine": "sglang",
        "version": version("sglang"),
        "made_with": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": version("transformers"),
            "probe": release.NAME,
        },
        "not_run": [*grid["not_run"]["sglang"], *release.NOT_RUN],
        "reading_target": tiny_targets.config_facts(models / reference),
        "draft": grid["draft"],
        "readings": readings,
        "targets": targets,
    }
    output.write_text(json.dumps(result), "utf-8")


if __name__ == "__main__":
    main()
