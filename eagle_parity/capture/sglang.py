"""The capture hook inside SGLang's workers: what the target hands to the draft head, and what the head's ``fc`` gets.

Two ways in, none of which changes SGLang:

- ``--forward-hooks``, with ``factory`` as the hook factory. ``eagle-parity capture sglang --launch-flags`` prints the
  flag. Releases before 0.5.10 have the flag too, but their forward batches carry no request ids.
- the plugin group ``sglang.srt.plugins``, with ``register`` (SGLang 0.5.11 and newer): the package is installed beside
  SGLang and ``EAGLE_PARITY_SPOOL`` names a folder; no flag.

Why these modules are hooked, from SGLang's own code (every release from 0.5.10 to 0.5.23):

- ``logits_processor``: every class with a setter for EAGLE-3, or the language model inside it, hands it ``(input_ids,
  hidden_states, lm_head, forward_batch, aux_hidden_states)`` by position; the auxiliary states are complete there,
  after every deferred all-reduce, as a list or as one tensor (``layers/aux_hidden_states.py``). What a decoder layer
  returns is a partial sum of one rank (``layers/layer_boundary``, 0.5.21 and newer): none is hooked.
- ``model``: holds ``layers_to_capture`` or the layers' flags, which is what the engine really captures. Gemma 4 has
  it as ``language_model`` (``models/gemma4_mm.py``).
- ``model.fc`` of the draft: its argument is the concatenation itself. Which module that is the draft's ``model`` says;
  it holds ``layers``, or ``midlayer`` (``models/llama_eagle3.py`` in 0.5.10 and 0.5.11, ``models/kimi_k25_eagle3.py``).

What moved between releases, and is read in each of its ways (the rank's record has under ``variants`` which it was):

- token ids: a wrapper's language model is called without any (``managers/mm_utils.py``, ``input_ids=None``: Kimi's
  and other multimodal targets), then they are the forward batch's.
- ranks and sizes: ``runtime_context.get_parallel()`` from 0.5.14, before it ``distributed.parallel_state`` with
  ``layers.dp_attention``; the replica of ``--dp-size`` is there from 0.5.21, before it in the process' title alone
  (``managers/scheduler.py``, ``sglang::scheduler_DP0_TP1``).
- options: ``runtime_context.get_server_args()`` from 0.5.15, before it ``server_args.get_global_server_args()``, which
  raises from 0.5.20.
- lengths: under data-parallel attention a batch is padded with dummy requests behind its own (0.5.13 and newer,
  ``_pad_inputs_to_size``); ``rids`` isn't.

On a server without a draft that captures by a list of ids (0.5.23: ``--enable-return-aux-hidden-states``; before it
``EAGLE_PARITY_LAYER_IDS`` with the plugin, which calls the target's own setter before graphs are captured) the same
hooks record a reference. The first and the last boundary, which few classes' lists reach, are recorded beside it where
``beside`` asks for them: the first layer's *input*, which is complete on every rank, and the residual that the final
norm returns with its output, which is complete where that is (``norm(hidden_states, residual)``, every class with a
residual of its own from 0.5.10 to 0.5.23).

It imports torch, safetensors and the standard library, and SGLang where it is called by it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import itertools
import os
import re
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.spool import (
    BOUNDARY_KEY,
    REQUEST_PREFIX,
    SPOOL_ENV,
    Spool,
    logger,
    make_spool,
    stated_max_tokens,
)
from eagle_parity.capture.worker_facts import class_of, config_of, rank_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from torch import nn

    from eagle_parity.capture.spool import Mark

TARGET_MODULES = (
    "logits_processor",
    "model",
    "model.fc",
    "language_model",
    "language_model.logits_processor",
    "language_model.model",
)
"""Names, as ``--forward-hooks`` matches them; ``language_model.`` is where Kimi's and other wrappers keep them."""

_OWNER = "_eagle_parity_tap"
"""Of a hooked module: a server with the flag and the plugin has two hooks on each, and one of them counts."""
_REPLICA = re.compile(r"_DP(\d+)")

FINAL_NORMS = ("model.norm", "language_model.model.norm")
"""Hooked as well where boundaries are recorded beside the list."""

LAYER_IDS_ENV = "EAGLE_PARITY_LAYER_IDS"
"""The list, ``0,1,2``, that the plugin gives to the setter of a target without a draft."""
BESIDE_ENV = "EAGLE_PARITY_BESIDE"
"""``beside`` of the plugin, ``0,32``."""
_PREFILL_MODES = frozenset({"EXTEND", "MIXED"})
"""``ForwardMode`` of a prompt's rows. What verification and decoding give belongs to drafts that may be rejected."""
_AUX, _FORWARD_BATCH, _HIDDEN, _INPUT_IDS = 4, 3, 1, 0
"""Positions of ``LogitsProcessor.forward``'s arguments (``layers/logits_processor.py``, 0.5.10 to 0.5.23)."""

_LAYER_LIST = "layers_to_capture"
_LAYER_FLAG = "_is_layer_to_capture"
"""How the classes without a list mark a decoder layer (``models/qwen3_moe.py`` and its kin); some have both."""

_spools: dict[str, Spool] = {}
"""One a process: the runners of target and draft live in the same one and share counters."""


def factory(config: Mapping[str, Any] | None = None) -> Callable[..., None]:
    """The hook factory of ``--forward-hooks``; called once for the target's model and once for the draft's.

    Args:
        config: ``{"spool": folder, "max_tokens": rows, "beside": [0, N]}``, as the launch flag has it.
    """
    try:
        config = config or {}
        folder = str(config.get("spool") or os.environ.get(SPOOL_ENV, ""))
        limit = stated_max_tokens(config.get("max_tokens"))
        beside = config.get("beside") or _numbers(os.environ.get(BESIDE_ENV, ""))
        if not folder:
            logger.warning("eagle-parity: no spool folder in the hook's config; nothing will be captured")
            return _do_nothing
        make_spool(folder)  # whoever captures needs the token before the first request of theirs
        return _Tap(folder, limit, beside).on_forward
    except Exception as error:  # noqa: BLE001  nothing may reach the engine
        logger.warning("eagle-parity: nothing will be captured: %s: %s", type(error).__name__, error)
        return _do_nothing


def register() -> None:
    """The entry point of SGLang's plugins: hooks every model that is loaded, if a spool folder is named."""
    if not os.environ.get(SPOOL_ENV):
        return

    def after_load(result: Any, runner: Any, *_: Any, **__: Any) -> Any:
        try:
            _ask_for_layers(runner)
            _attach(runner.model)
        except Exception:  # noqa: BLE001  nothing may reach the engine
            logger.exception("eagle-parity: the capture hook could not be attached; the server goes on")
        return result

    try:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        loading = "sglang.srt.model_executor.model_runner.ModelRunner.load_model"
        HookRegistry.register(loading, after_load, HookType.AFTER)
    except Exception as error:  # noqa: BLE001  nothing may reach the engine
        logger.warning("eagle-parity: nothing will be captured, this release takes no such hook: %s", error)


def _attach(model: nn.Module) -> None:
    hook = factory()
    hooked = (*TARGET_MODULES, *FINAL_NORMS) if os.environ.get(BESIDE_ENV) else TARGET_MODULES
    for name, module in model.named_modules():
        if name in hooked:
            module.register_forward_hook(hook)


def _ask_for_layers(runner: Any) -> None:
    """Gives the list of the environment to the target's setter: just where there is no draft that its states feed."""
    listed = os.environ.get(LAYER_IDS_ENV)
    if not listed:
        return
    if getattr(runner, "is_draft_worker", False) or not runner.spec_algorithm.is_none():
        logger.warning("eagle-parity: %s is for a server without speculation; it is left alone", LAYER_IDS_ENV)
        return
    setter = getattr(runner.model, "set_eagle3_layers_to_capture", None)
    if setter is None:
        logger.warning("eagle-parity: %s has no way to capture states", type(runner.model).__name__)
        return
    setter(_numbers(listed))
    logger.info("eagle-parity: %s captures by the ids %s", type(runner.model).__name__, listed)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number.strip()]


def _do_nothing(*_: object) -> None:
    """The hook of a configuration that can't be used."""


class _Tap:
    """What one model's hooks share; target and draft have one each."""

    def __init__(self, folder: str, max_tokens: int, beside: Sequence[int] = ()) -> None:
        self.folder = folder
        self.max_tokens = max_tokens
        self.beside = _Beside(beside)
        self.inner: Any = None  # the module that holds the decoder layers
        self.fc: Any = None
        self.fc_input: torch.Tensor | None = None
        self.broken = False

    def on_forward(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Called by torch after each hooked module's forward."""
        if self.broken or module.__dict__.setdefault(_OWNER, self) is not self:
            return
        marks: list[Mark | None] = []
        try:
            name = type(module).__name__
            if name.endswith("LogitsProcessor"):
                self._on_logits(args, marks)
                self.fc_input = None
                self.beside.states = {}
            elif hasattr(module, "layers") or hasattr(module, "fc"):
                self.inner = module
                self._keep_fc(module)
                self.beside.watch(module)
            elif "Norm" in name:
                self.beside.on_final_norm(output)
            elif not hasattr(module, "model"):  # a wrapper's language model has one
                # fc runs before the draft's logits processor, which knows whose rows these are.
                self.fc, self.fc_input = module, args[0] if args else None
        except Exception as error:  # noqa: BLE001  nothing may reach the engine
            self._fail(marks, error)

    def _keep_fc(self, inner: Any) -> None:
        """Of what ran before it, the draft's model says which was its ``fc``."""
        if getattr(inner, "fc", None) is not self.fc:
            self.fc, self.fc_input = None, None

    def _on_logits(self, args: tuple[Any, ...], marks: list[Mark | None]) -> None:
        batch: Any = args[_FORWARD_BATCH] if len(args) > _FORWARD_BATCH else None
        if batch is not None and not hasattr(batch, "rids"):
            self._give_up(f"this release's {type(batch).__name__} has no rids, so rows can't be told apart")
        request_ids = getattr(batch, "rids", None)
        if not request_ids or not _has_ours(request_ids):
            return
        spool = self._spool(request_ids)
        marks.extend(spool.marks(request_ids))
        sessions = {mark.session for mark in marks if mark is not None}
        is_draft = self.fc is not None or hasattr(self.inner, "fc")  # a head of one slot skips its fc
        for session in sessions:
            if not spool.described(session, "draft" if is_draft else "target"):
                spool.describe(session, self._facts(args, is_draft=is_draft))
        mode = getattr(batch.forward_mode, "name", str(batch.forward_mode))
        lengths = _attribute(batch, "extend_seq_lens_cpu")
        if mode not in _PREFILL_MODES or lengths is None:
            for session in sessions:
                spool.count(session, f"rows of {mode}", int(args[_HIDDEN].shape[0]))
        elif sessions:
            self._write(args, marks, lengths, mode, is_draft=is_draft)

    def _write(
        self, args: tuple[Any, ...], marks: Sequence[Mark | None], lengths: Sequence[int], mode: str, *, is_draft: bool
    ) -> None:
        spool, batch = self._spool(), args[_FORWARD_BATCH]
        if len(lengths) < len(marks):
            raise _UnknownReleaseError(f"{len(lengths)} lengths of {len(marks)} requests")
        ends = list(itertools.accumulate(int(length) for length in lengths[: len(marks)]))
        spans = [slice(start, end) for start, end in itertools.pairwise([0, *ends])]
        token_ids, _ = _token_ids(args)
        for session in {mark.session for mark in marks if mark is not None}:
            spool.count(session, "padding rows", max(0, int(token_ids.shape[0]) - ends[-1]))
        ids = {"token_ids": token_ids, "positions": _attribute(batch, "positions")}
        states = self._draft_input() if is_draft else self._target_states(args)
        if isinstance(states, str):
            spool.fail(marks, states)
        elif states:
            spool.write("draft" if is_draft else "aux", {**ids, **states}, marks, spans, mode=mode)

    def _target_states(self, args: tuple[Any, ...]) -> dict[str, torch.Tensor] | str:
        """The auxiliary states, what is recorded beside them, and the last one; or why they aren't there."""
        beside = self.beside.take(self.inner)
        aux = args[_AUX] if len(args) > _AUX else None
        if aux is None:
            return (
                "the target hands over no auxiliary states: this server runs no EAGLE-3 head, and captures by no list"
                " of ids"
            )
        if isinstance(beside, str):
            return beside
        states = {"packed": aux} if hasattr(aux, "shape") else {f"slot.{i}": slot for i, slot in enumerate(aux)}
        return {**states, **beside, "last_state": args[_HIDDEN]}

    def _draft_input(self) -> dict[str, torch.Tensor]:
        return {} if self.fc_input is None else {"draft_input": self.fc_input}

    def _fail(self, marks: Sequence[Mark | None], error: Exception) -> None:
        try:
            if marks and self.folder in _spools:
                _spools[self.folder].fail(marks, error)
            else:
                # The spool itself can't be used: say it once and get out of the way.
                self.broken = True
                logger.warning(
                    "eagle-parity: %s can't be used, nothing is captured from now on: %s", self.folder, error
                )
        except Exception:  # noqa: BLE001  nothing may reach the engine
            self.broken = True
            logger.exception("eagle-parity: the capture hook failed; the server goes on without it")

    def _give_up(self, reason: str) -> None:
        self.broken = True
        logger.warning("eagle-parity: nothing is captured: %s", reason)

    def _spool(self, request_ids: Sequence[object] = ()) -> Spool:
        if self.folder not in _spools:
            try:
                rank = rank_name(parallel_facts())
            except Exception as error:
                # Without a rank's name nothing is recorded, but that can be told to whoever asked.
                nameless = Spool(self.folder, f"pid{os.getpid()}", max_tokens=0)
                nameless.fail(nameless.marks(request_ids), error)
                raise
            _spools[self.folder] = Spool(self.folder, rank, max_tokens=self.max_tokens)
        return _spools[self.folder]

    def _facts(self, args: tuple[Any, ...], *, is_draft: bool) -> dict[str, Any]:
        inner, fc = self.inner, self.fc
        config = getattr(inner, "config", None)
        if is_draft:
            normed = getattr(inner, "input_norm", None) is not None or getattr(inner, "fc_norm", None) is not None
            return {
                "draft": {
                    "model_class": class_of(inner),
                    "fc_class": class_of(fc),
                    "fc_weight": list(fc.weight.shape) if getattr(fc, "weight", None) is not None else None,
                    "normed_before_fc": normed,
                    "config": config_of(config),
                }
            }
        aux = args[_AUX] if len(args) > _AUX else None
        server, server_from = _server_facts()
        return {
            "engine": {"name": "sglang", "version": _version("sglang")},
            "parallel": parallel_facts(),
            "server": server,
            "variants": {"token_ids": _token_ids(args)[1], "parallel": _parallel_context()[1], "server": server_from},
            "tap": "logits_processor arguments: "
            + ("none" if aux is None else "one packed tensor" if hasattr(aux, "shape") else "a list of states")
            + self.beside.told,
            "target": {
                "model_class": class_of(inner),
                "config": config_of(config),
                "num_layers": len(inner.layers) if inner is not None else None,
                "hidden_size": int(args[_HIDDEN].shape[-1]),
                "dtype": str(args[_HIDDEN].dtype).removeprefix("torch."),
                "layer_set": layer_set(inner),
            },
        }


class _Beside:
    """The first and the last boundary, where they are recorded beside the list of auxiliary states.

    Args:
        wanted: boundary 0, boundary N, both or none.
    """

    def __init__(self, wanted: Sequence[int]) -> None:
        self.wanted = frozenset(int(boundary) for boundary in wanted)
        self.states: dict[str, torch.Tensor] = {}
        self._watched = False

    @property
    def told(self) -> str:
        """For the tap of the record."""
        places = {0: "boundary 0 from the first layer's input"}
        return "".join(f", {places.get(b, f'boundary {b} from the final norm')}" for b in sorted(self.wanted))

    def watch(self, inner: Any) -> None:
        """Hooks the first layer's input, once. Until a forward is through, the layers are not known."""
        if self._watched or 0 not in self.wanted:
            return
        self._watched = True
        parameters = inspect.signature(inner.layers[0].forward)

        def before_first_layer(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            try:
                given = parameters.bind_partial(*args, **kwargs).arguments
                if _has_ours(getattr(given.get("forward_batch"), "rids", None)):
                    # The layer's norms write into this very tensor.
                    self.states[f"{BOUNDARY_KEY}0"] = given["hidden_states"].detach().clone()
            except Exception:  # noqa: BLE001  nothing may reach the engine; what is missing is told with the forward
                self.states.pop(f"{BOUNDARY_KEY}0", None)

        inner.layers[0].register_forward_pre_hook(before_first_layer, with_kwargs=True)

    def on_final_norm(self, output: object) -> None:
        """Keeps the residual, unless the norm was given none: then nothing says that its input was the whole stream."""
        last = max(self.wanted, default=0)
        if last and isinstance(output, tuple) and len(output) == 2:  # noqa: PLR2004  normed state, residual
            self.states[f"{BOUNDARY_KEY}{last}"] = output[1]

    def take(self, inner: Any) -> dict[str, torch.Tensor] | str:
        """What this forward gave, by the tensors' names; or why not all of it is there."""
        states, self.states = self.states, {}
        if not self.wanted:
            return {}
        if not self.wanted <= {0, len(inner.layers)}:
            return f"the target has {len(inner.layers)} layers, and {sorted(self.wanted)} are to be recorded beside"
        missing = sorted(b for b in self.wanted if f"{BOUNDARY_KEY}{b}" not in states)
        if missing:
            return (
                f"boundary {missing[0]} was not seen in this forward: it was the first one of this server, so capture"
                " once more, or this class passes it on in another way, so leave it out of --boundaries"
            )
        return states


def layer_set(inner: Any) -> dict[str, list[int]] | None:
    """What the live module captures, in its own indices: the list it holds, and the layers that bear a mark.

    Args:
        inner: the module that holds the decoder layers.
    """
    found = {}
    if getattr(inner, _LAYER_LIST, None) is not None:
        found["list"] = [int(index) for index in getattr(inner, _LAYER_LIST)]
    layers = list(getattr(inner, "layers", ()))
    if any(hasattr(layer, _LAYER_FLAG) for layer in layers):
        found["flags"] = [index for index, layer in enumerate(layers) if getattr(layer, _LAYER_FLAG, False)]
    return found or None


def _has_ours(request_ids: Sequence[object] | None) -> bool:
    """Whether one of them looks like ours; the spool says whether it is."""
    return any(isinstance(one, str) and REQUEST_PREFIX in one for one in request_ids or ())


class _UnknownReleaseError(RuntimeError):
    """This release does something else than the releases that the hook was read from."""


def _attribute(batch: Any, name: str) -> Any:
    if not hasattr(batch, name):
        raise _UnknownReleaseError(f"{type(batch).__name__} has no {name}; the hook knows SGLang 0.5.10 to 0.5.23")
    return getattr(batch, name)


def _token_ids(args: tuple[Any, ...]) -> tuple[Any, str]:
    """The token ids of a forward, and where they were found."""
    if args[_INPUT_IDS] is not None:
        return args[_INPUT_IDS], "argument"
    return _attribute(args[_FORWARD_BATCH], "input_ids"), "forward_batch.input_ids"


_CONTEXT = "sglang.srt.runtime_context"
_PARALLEL_NAMES = (
    "tp_size",
    "tp_rank",
    "pp_size",
    "pp_rank",
    "attn_tp_size",
    "attn_tp_rank",
    "attn_dp_size",
    "attn_dp_rank",
)


def _parallel_context() -> tuple[Any, str]:
    """What this release keeps sizes and ranks in, if anything, and which way that is."""
    try:
        return importlib.import_module(_CONTEXT).get_parallel(), "runtime_context"
    except ImportError:
        return None, "distributed.parallel_state"


def parallel_facts() -> dict[str, int]:
    """Sizes and ranks of this worker, by whichever of SGLang's ways this release has.

    Raises:
        RuntimeError: one of several replicas, and nothing says which: their files would have the same names.
    """
    parallel, _ = _parallel_context()
    if parallel is not None:
        found = {name: int(getattr(parallel, name)) for name in _PARALLEL_NAMES}
    else:
        state = importlib.import_module("sglang.srt.distributed.parallel_state")
        attention = importlib.import_module("sglang.srt.layers.dp_attention")
        found = {
            "tp_size": state.get_tensor_model_parallel_world_size(),
            "tp_rank": state.get_tensor_model_parallel_rank(),
            "pp_size": state.get_pp_group().world_size,
            "pp_rank": state.get_pp_group().rank_in_group,
            "attn_tp_size": attention.get_attention_tp_size(),
            "attn_tp_rank": attention.get_attention_tp_rank(),
            "attn_dp_size": attention.get_attention_dp_size(),
            "attn_dp_rank": attention.get_attention_dp_rank(),
        }
    # Up to 0.5.22 --dp-size is also the size of attention data parallelism, which is no replication.
    replicas = int(getattr(_server_arguments()[0], "dp_size", 1) or 1) // max(1, found["attn_dp_size"])
    if replicas > 1:
        replica = getattr(parallel, "dp_rank", None)
        replica = _replica_of_title() if replica is None else replica
        if replica is None:
            raise _UnknownReleaseError("the server runs several replicas, and which one this is can't be read")
        found |= {"dp_size": replicas, "dp_rank": int(replica)}
    return found


def _replica_of_title() -> int | None:
    """The replica by the title that the scheduler gives its process."""
    try:
        title = importlib.import_module("setproctitle").getproctitle()
    except Exception:  # noqa: BLE001  a package of SGLang's, not ours
        return None
    match = _REPLICA.search(title)
    return int(match[1]) if match else None


def _server_arguments() -> tuple[Any, str]:
    for module, name in ((_CONTEXT, "get_server_args"), ("sglang.srt.server_args", "get_global_server_args")):
        try:
            return getattr(importlib.import_module(module), name)(), name
        except Exception:  # noqa: BLE001, S112  each release has its own way
            continue
    return None, "none"


def _server_facts() -> tuple[dict[str, Any], str]:
    """Options of the running server that decide what a capture can see, and by which way they were read."""
    names = (
        "chunked_prefill_size",
        "disable_radix_cache",
        "disable_cuda_graph",
        "attention_backend",
        "quantization",
        "kv_cache_dtype",
        "speculative_algorithm",
        "speculative_draft_model_path",
        "model_path",
        "enable_mixed_chunk",
    )
    arguments, source = _server_arguments()
    return {name: value for name in names if _is_plain(value := getattr(arguments, name, None))}, source


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool)


@functools.cache
def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
