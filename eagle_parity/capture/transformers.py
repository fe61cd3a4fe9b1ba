"""The reference: hidden states from a forward of a local target with transformers.

Every state is taken where a layer or the final norm receives it, by hooks that run before it, and not from
``output_hidden_states``: that tuple's last entry is the state *after* the final norm (transformers 4.51 to 5.19), so
boundary N isn't in it; it keeps all N + 1 states on the device where a list of three was asked for; and a hook sees by
definition what the next layer sees, an embedding that the model scales first (Gemma) and what is added between two
layers (Qwen3-VL's deepstack) included.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from eagle_parity.capture.manifest import CapturedTarget, Manifest, Producer
from eagle_parity.capture.prompts import SkippedSequence, TokenSequence
from eagle_parity.capture.writer import CaptureWriter, check_output
from eagle_parity.errors import InputError, MissingExtraError, UsageError
from eagle_parity.files import is_folder
from eagle_parity.quoting import one_line
from eagle_parity.targets import Target, read_target
from eagle_parity.wiring import POST_NORM, Boundary

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import torch
    from torch import nn
    from transformers import PreTrainedModel

    from eagle_parity.capture.prompts import TokenSource

Dtype: TypeAlias = Literal["auto", "bfloat16", "float16", "float32"]
StoredDtype: TypeAlias = Literal["bfloat16", "float16", "float32"]
Attention: TypeAlias = Literal["sdpa", "eager"]

_DTYPES: dict[str, StoredDtype] = {"bfloat16": "bfloat16", "float16": "float16", "float32": "float32"}

# The probe for the decoder stack: modules below the base model (the model without its head), tried in this order.
_DECODER_PATHS = (
    "",  # LlamaModel, Qwen3Model, DeepseekV3Model, GptOssModel, Gemma3TextModel: the stack itself
    "language_model",  # Qwen3VLModel, Gemma3Model, LlavaModel, Mistral3Model: a text model beside a vision tower
    "language_model.model",  # classes that nest a whole causal model
    "text_model",  # Llama4 and Idefics-like names
    "decoder",  # OPTModel
)
_LAYERS_NAMES = ("layers", "h")
_NORM_NAMES = ("norm", "final_layernorm", "final_layer_norm", "ln_f")

_FIRST_WITH_DTYPE = (4, 56)
"""The transformers release in which ``from_pretrained(torch_dtype=...)`` became ``dtype``."""

MIN_BITS_PER_PARAMETER = 1
"""No checkpoint stores an embedding in less: what a config claims must be backed by that many bits of weights."""


@dataclass(frozen=True, slots=True)
class TransformersCapture:
    """What a run of ``capture_transformers`` did.

    Attributes:
        manifest: as written.
        skipped: the sequences that could not be captured, with reasons.
        seconds: wall time, loading the target included.
    """

    manifest: Manifest
    skipped: tuple[SkippedSequence, ...]
    seconds: float


class ReferenceForward:
    """A target, loaded once, whose states can be asked for sequence by sequence.

    Args:
        target_dir: a folder with config.json and weights. Nothing is downloaded and no code from it is run.
        dtype: of the computation; ``auto`` takes the checkpoint's.
        device: ``auto`` takes the GPU where there is one, else the CPU.
        attention: ``sdpa`` needs no memory quadratic in T; ``eager`` is for target classes without it.

    Raises:
        InputError: the folder isn't a target that transformers can load whole, or its decoder can't be found.
        MissingExtraError: torch or transformers isn't installed.
    """

    def __init__(
        self, target_dir: str | Path, *, dtype: Dtype = "auto", device: str = "auto", attention: Attention = "sdpa"
    ) -> None:
        _require_transformers()
        import torch
        import transformers

        self.target = _read_local_target(target_dir)
        self.attention = attention
        self.engine = f"transformers@{transformers.__version__}"
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = _load(target_dir, dtype=dtype, attention=attention)
        try:
            self.model = self.model.to(torch.device(device))  # type: ignore[arg-type]  # its decorator hides the type
        except RuntimeError as error:  # no such device, or not enough memory on it
            raise InputError(target_dir, f"can't be moved to {device!r} ({one_line(error)})") from error
        self.device = device
        self.layers, self.norm = _find_decoder(self.model, self.target)

    @property
    def dtype(self) -> StoredDtype:
        """The dtype of the computation."""
        name = str(self.model.dtype).removeprefix("torch.")
        if name not in _DTYPES:
            raise InputError(
                self.target.path, f"computes in {name}", expected="a floating dtype", remedy="pass --dtype bfloat16"
            )
        return _DTYPES[name]

    def check_tokens(self, token_ids: Sequence[int]) -> str | None:
        """Why these tokens can't be run, or None: none at all, ids outside the vocabulary, more than the positions."""
        if not token_ids:
            return "no tokens"
        embedding: Any = self.model.get_input_embeddings()
        vocab_size = embedding.weight.shape[0]
        for position, token in enumerate(token_ids):
            if not 0 <= token < vocab_size:
                return (
                    f"token id {token} at position {position} is outside the target's vocabulary of {vocab_size:,}: "
                    "the tokens are another model's"
                )
        positions = self.target.config.get("max_position_embeddings")
        if isinstance(positions, int) and len(token_ids) > positions:
            return (
                f"{len(token_ids):,} tokens, but the target has {positions:,} positions "
                "(max_position_embeddings): pass --max-tokens"
            )
        return None

    def states(
        self, token_ids: Sequence[int], boundaries: Collection[Boundary], *, dtype: StoredDtype | None = None
    ) -> dict[Boundary, torch.Tensor]:
        """The states of one sequence.

        Args:
            token_ids: T ids that ``check_tokens`` accepts.
            boundaries: the states to keep; nothing else is.
            dtype: of what is returned; the computation's by default.

        Returns:
            ``[T, H]`` on the CPU for each boundary.

        Raises:
            InputError: the forward doesn't run each layer once over one residual stream.
        """
        import torch

        stored: torch.dtype = getattr(torch, dtype or self.dtype)
        shape = (1, len(token_ids), self.target.hidden_size)
        kept: dict[Boundary, torch.Tensor] = {}
        surprises: list[str] = []

        def keep(boundary: Boundary, state: object) -> None:
            if boundary in kept:
                surprises.append(f"boundary {boundary} is passed twice in one forward")
            elif not isinstance(state, torch.Tensor) or state.shape != shape:
                found = list(state.shape) if isinstance(state, torch.Tensor) else type(state).__name__
                surprises.append(f"boundary {boundary} is {found}, not one residual stream {list(shape)}")
            else:
                # A copy always: a later layer may write into the same memory.
                kept[boundary] = state[0].detach().to(device="cpu", dtype=stored, copy=True)

        with torch.inference_mode(), _hooks(self.layers, self.norm, set(boundaries), keep):
            ids = torch.tensor([list(token_ids)], dtype=torch.int64, device=self.device)
            # Without the head: logits over the vocabulary would be the largest tensor of the whole forward.
            self.model.base_model(input_ids=ids, use_cache=False)
        missing = [b for b in boundaries if b not in kept]
        if surprises or missing:
            raise InputError(
                self.target.path,
                surprises[0] if surprises else f"its forward never reaches boundary {missing[0]}",
                expected="a decoder with one residual stream, whose layers run once each and end in the final norm",
            )
        return kept


def capture_transformers(
    target_dir: str | Path,
    sequences: TokenSource,
    output: str | Path,
    *,
    boundaries: Sequence[Boundary] | None = None,
    last_state: Boundary | None = None,
    dtype: Dtype = "auto",
    store_dtype: StoredDtype | None = None,
    device: str = "auto",
    attention: Attention = "sdpa",
    overwrite: bool = False,
    on_sequence: Callable[[str], None] | None = None,
) -> TransformersCapture:
    """Records the hidden states of a target over some token sequences, one forward a sequence.

    Args:
        target_dir: a local folder with config.json and weights.
        sequences: the tokens; consumed lazily, a ``SkippedSequence`` among them is passed on.
        output: the capture's directory.
        boundaries: the slots in concatenation order; None for 0 to N.
        last_state: kept beside the slots; post_norm where ``boundaries`` is None.
        dtype: of the computation.
        store_dtype: of the files; the computation's by default.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``.
        attention: see ``ReferenceForward``.
        overwrite: see ``CaptureWriter``.
        on_sequence: called with a sequence's name before it is run, for a progress display.

    Raises:
        InputError: the target can't be loaded, the output can't be written, or not one sequence could be captured.
        UsageError: a boundary that the target doesn't have.
        MissingExtraError: torch or transformers isn't installed.
    """
    started = time.perf_counter()
    _require_transformers()
    check_output(output, overwrite=overwrite)
    num_layers = _read_local_target(target_dir).num_layers
    if boundaries is None:
        boundaries = range(num_layers + 1)
        last_state = POST_NORM if last_state is None else last_state
    wanted = [*boundaries, *([] if last_state is None else [last_state])]
    for boundary in wanted:
        if boundary != POST_NORM and not 0 <= boundary <= num_layers:
            raise UsageError(f"boundary {boundary}: the target has {num_layers} layers, boundaries 0 to {num_layers}")
    # The first sequence is drawn before the target is loaded and before a former capture goes: an unreadable source
    # must cost neither.
    remaining = iter(sequences)
    first = next(remaining, None)
    if first is None:
        raise InputError(output, "nothing to capture", expected="at least one token sequence")
    reference = ReferenceForward(target_dir, dtype=dtype, device=device, attention=attention)
    stored = store_dtype or reference.dtype
    writer = CaptureWriter(
        output,
        producer=Producer(
            engine=reference.engine,
            dtype=reference.dtype,
            options={"attention": attention, "device": reference.device.partition(":")[0]},
        ),
        target=CapturedTarget(
            name=Path(os.path.realpath(target_dir)).name,
            architectures=list(reference.target.architectures),
            num_layers=num_layers,
            hidden_size=reference.target.hidden_size,
        ),
        slots=list(boundaries),
        last_state=last_state,
        dtype=stored,
        overwrite=overwrite,
    )
    skipped: list[SkippedSequence] = []
    with writer:
        for sequence in chain((first,), remaining):
            if isinstance(sequence, SkippedSequence):
                skipped.append(sequence)
                continue
            if on_sequence is not None:
                on_sequence(sequence.name)
            reason = reference.check_tokens(sequence.token_ids) or _capture_one(
                reference, writer, sequence, boundaries=boundaries, last_state=last_state, stored=stored
            )
            if reason:
                skipped.append(SkippedSequence(sequence.name, reason))
        if not writer.manifest.sequences:
            told = f"; the first: {skipped[0].name}: {skipped[0].reason}" if skipped else ""
            raise InputError(
                output, f"nothing to capture, {len(skipped)} sequences were skipped{told}", expected="token sequences"
            )
    return TransformersCapture(manifest=writer.manifest, skipped=tuple(skipped), seconds=time.perf_counter() - started)


def _capture_one(
    reference: ReferenceForward,
    writer: CaptureWriter,
    sequence: TokenSequence,
    *,
    boundaries: Sequence[Boundary],
    last_state: Boundary | None,
    stored: StoredDtype,
) -> str | None:
    """Runs and writes one sequence; why that wasn't possible, or None."""
    import torch

    wanted = {*boundaries, *([] if last_state is None else [last_state])}
    try:
        states = reference.states(sequence.token_ids, wanted, dtype=stored)
    except torch.cuda.OutOfMemoryError:
        return f"{len(sequence.token_ids):,} tokens don't fit into the GPU's memory: pass --max-tokens or --device cpu"
    writer.write(
        sequence.name,
        torch.tensor(sequence.token_ids, dtype=torch.int64),
        [states[boundary] for boundary in boundaries],
        last_state=None if last_state is None else states[last_state],
        loss_mask=None if sequence.loss_mask is None else torch.tensor(sequence.loss_mask, dtype=torch.int64),
    )
    return None


@contextmanager
def _hooks(
    layers: nn.ModuleList, norm: nn.Module, boundaries: set[Boundary], keep: Callable[[Boundary, object], None]
) -> Iterator[None]:
    """Calls ``keep`` with what layer k (boundary k) and the final norm (boundary N) receive and the norm gives."""

    def before(boundary: int) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            keep(boundary, args[0] if args else kwargs.get("hidden_states"))

        return hook

    handles = [
        module.register_forward_pre_hook(before(boundary), with_kwargs=True)
        for boundary, module in enumerate((*layers, norm))
        if boundary in boundaries
    ]
    if POST_NORM in boundaries:
        handles.append(norm.register_forward_hook(lambda _module, _args, state: keep(POST_NORM, state)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _find_decoder(model: PreTrainedModel, target: Target) -> tuple[nn.ModuleList, nn.Module]:
    """The decoder layers and the final norm, by the probe above."""
    from torch import nn

    base = model.base_model
    for path in _DECODER_PATHS:
        try:
            stack = base.get_submodule(path)
        except AttributeError:
            continue
        layers = next((m for n in _LAYERS_NAMES if isinstance(m := getattr(stack, n, None), nn.ModuleList)), None)
        norm = next((m for n in _NORM_NAMES if isinstance(m := getattr(stack, n, None), nn.Module)), None)
        if layers is not None and norm is not None and len(layers) == target.num_layers:
            return layers, norm
    raise InputError(
        target.path,
        f"no decoder of {target.num_layers} layers with a final norm was found in {type(base).__name__}",
        expected=f"{' or '.join(_LAYERS_NAMES)} beside {', '.join(_NORM_NAMES)} in the base model or its text model",
        remedy="this target class isn't supported by capture transformers yet",
    )


def _require_transformers() -> None:
    try:
        import torch  # noqa: F401  that it can be imported is the question
        import transformers  # noqa: F401  likewise
    except ModuleNotFoundError as error:
        raise MissingExtraError("capture transformers", "transformers", error.name or "transformers") from error
    except ImportError as error:  # installed, but its own dependencies don't fit
        raise UsageError(f"capture transformers can't import transformers: {one_line(error)}") from error


def _read_local_target(target_dir: str | Path) -> Target:
    if not is_folder(target_dir):
        raise InputError(target_dir, "no such folder", expected="a local target folder with config.json and weights")
    target = read_target(str(target_dir))
    weights = sum(path.stat().st_size for path in Path(target_dir).iterdir() if path.suffix in {".safetensors", ".bin"})
    if not weights:
        raise InputError(target_dir, "no weights in this folder", expected="*.safetensors beside its config.json")
    # transformers allocates what the config says before it looks at the weights.
    smallest = target.hidden_size * (target.vocab_size or 1) * MIN_BITS_PER_PARAMETER // 8
    if smallest > weights:
        raise InputError(
            target_dir,
            f"its config claims an embedding of {target.vocab_size:,} x {target.hidden_size:,}, "
            f"its weights are {weights:,} bytes",
            expected="a config that fits the weights",
        )
    return target


def _load(target_dir: str | Path, *, dtype: Dtype, attention: Attention) -> PreTrainedModel:
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    local = {"local_files_only": True, "trust_remote_code": False}
    options = {
        **local,
        ("dtype" if version >= _FIRST_WITH_DTYPE else "torch_dtype"): dtype,
        "attn_implementation": attention,
        "output_loading_info": True,
        "weights_only": True,
    }
    with _silenced(transformers):
        try:
            config = AutoConfig.from_pretrained(str(target_dir), **local)
            is_causal = any(str(name).endswith("ForCausalLM") for name in config.architectures or ())
            autos: list[Any] = [AutoModelForCausalLM, AutoModelForImageTextToText]
            first, second = autos if is_causal else reversed(autos)
            try:
                model, info = first.from_pretrained(str(target_dir), config=config, **options)
            except ValueError as error:
                if "Unrecognized configuration class" not in str(error):
                    raise
                model, info = second.from_pretrained(str(target_dir), config=config, **options)
        except Exception as error:  # whatever is wrong with a folder, it raises something else
            raise InputError(
                target_dir,
                f"transformers {transformers.__version__} can't load it ({one_line(error)})",
                expected="a target that transformers loads without remote code",
            ) from error
    # The library fills in random weights for what it doesn't find and only logs it: no reference for anything.
    missing = sorted(str(key) for key in info["missing_keys"] if not str(key).startswith("lm_head"))
    mismatched = sorted(str(key) for key in info["mismatched_keys"])
    if missing or mismatched:
        keys = (missing or mismatched)[:3]
        raise InputError(
            target_dir,
            f"{len(missing)} weights are missing and {len(mismatched)} have another shape, such as {', '.join(keys)}",
            expected="all weights of the class that its config names",
        )
    loaded: PreTrainedModel = model.eval()
    return loaded


@contextmanager
def _silenced(transformers: Any) -> Iterator[None]:
    """Without the library's own progress bars and log lines: what matters of them is raised."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
