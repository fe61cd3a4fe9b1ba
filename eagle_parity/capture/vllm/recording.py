"""What is written of each step of a vLLM worker.

Three methods come by:

- ``runner.propose_draft_token_ids`` (V1 runner, ``v1/worker/gpu_model_runner.py:4748``, 0.32.0) or the speculator's
  ``propose`` (V2, ``v1/worker/gpu/spec_decode``): the auxiliary states, one tensor a slot, before the concatenation.
- the drafter's ``propose``: token ids and positions of the concatenation's rows.
- the draft model's ``combine_hidden_states``: its argument is what ``fc`` gets.

Where a capture asks for it, rows of generated tokens are recorded as well, those that this rank accepted: the tokens
that verification sampled on this rank say how many these are. Ranks may sample different ones.

A server with the speculative method ``extract_hidden_states`` has no draft: the first of the three is wrapped alone,
and what comes by is a reference. No KV connector is needed for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eagle_parity.capture.vllm.choices import NOT_CHOSEN, v1_choices, v2_choices
from eagle_parity.capture.vllm.releases import CaptureError, unknown_release
from eagle_parity.capture.vllm.rows import Rows, States, prompt_rows
from eagle_parity.capture.vllm.ways import (
    V1_DRAFT_WAY,
    V1_WAYS,
    V2_DRAFT_WAY,
    V2_WAYS,
    refuse_other_v1,
    slots_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from eagle_parity.capture.spool.request_ids import Mark
    from eagle_parity.capture.spool.worker import Spool
    from eagle_parity.capture.vllm.choices import Choice
    from eagle_parity.capture.vllm.live_objects import LiveObjects


class Tap(NamedTuple):
    """A method to be wrapped: of which object, what is called around it, and the arguments that this reads."""

    owner: Any
    name: str
    around: Callable[[dict[str, Any]], None]
    reads: tuple[str, ...]


class Recording:
    """What the wrappers do.

    Args:
        live: the worker's objects.
        spool: the worker's.
        facts: gives what the record says of the worker.
        heard: is told of every session that rows are written for.

    Attributes:
        generated: whether rows of generated tokens are recorded as well.
    """

    def __init__(
        self, live: LiveObjects, spool: Spool, facts: Callable[[], dict[str, Any]], heard: Callable[[str], None]
    ) -> None:
        self._live = live
        self._spool = spool
        self._facts = facts
        self._heard = heard
        self._rows: Rows | None = None  # of the forward whose draft is being proposed
        self.generated = False
        self._sampled_way = ""

    def taps(self) -> list[Tap]:
        """What is wrapped on this server.

        Raises:
            CaptureError: it runs no EAGLE-3 head.
        """
        live = self._live
        if live.is_v1:
            refuse_other_v1(live.runner)
        drafter, draft_model = live.drafter, None if live.extracts else live.draft_model
        if live.is_v1:
            chosen: tuple[str, ...] = ("sampled_token_ids", "spec_decode_metadata") if self.generated else ()
            reads = ("common_attn_metadata", "aux_hidden_states", "hidden_states", *chosen)
            taps = [Tap(live.runner, "propose_draft_token_ids", self._around_v1_runner, reads)]
        else:
            chosen = ("num_rejected", "last_sampled") if self.generated else ()
            reads = ("input_batch", "aux_hidden_states", "last_hidden_states", *chosen)
            taps = [Tap(drafter, "propose", self._around_v2_speculator, reads)]
        if draft_model is not None:
            if live.is_v1:
                drafted = ("target_token_ids", "target_positions", "common_attn_metadata")
                taps.append(Tap(drafter, "propose", self._around_v1_drafter, drafted))
            taps.append(Tap(draft_model, "combine_hidden_states", self._around_combine, ()))
        return taps

    def variants(self) -> dict[str, str]:
        """By which ways the values of a step are read; of sampled ids, as far as it is known yet."""
        is_v1 = self._live.is_v1
        ways = dict(V1_WAYS if is_v1 else V2_WAYS)
        if not self._live.extracts:
            ways["draft_rows"] = V1_DRAFT_WAY if is_v1 else V2_DRAFT_WAY
        return ways | ({"sampled_ids": self._sampled_way} if self._sampled_way else {})

    def forget(self) -> None:
        """Lets go of the forward that came by last."""
        self._rows = None

    def fail(self, error: Exception, arguments: Mapping[str, Any]) -> None:
        """Writes down what failed, for the sessions that have requests in the forward."""
        self._rows = None
        told: Exception | str = error
        if isinstance(error, AttributeError | KeyError | TypeError):
            told = unknown_release(f"{type(error).__name__}: {error}")
        self._spool.fail(self._marks_of(arguments), str(told) if isinstance(told, CaptureError) else told)

    def _around_v1_runner(self, arguments: dict[str, Any]) -> None:
        runner, metadata = self._live.runner, arguments["common_attn_metadata"]
        self._rows = None
        rows = self._v1_rows(
            runner.input_ids.gpu,
            runner._get_positions(int(metadata.num_actual_tokens)),  # noqa: SLF001  there is no public one
            metadata,
        )
        if rows is not None:
            states = States(slots_of(arguments["aux_hidden_states"]), arguments["hidden_states"], "runner v1")
            self._write_aux(rows, states)
            self._write_generated(
                rows, states, lambda: v1_choices(arguments["sampled_token_ids"], arguments.get("spec_decode_metadata"))
            )

    def _around_v1_drafter(self, arguments: dict[str, Any]) -> None:
        rows = self._v1_rows(
            arguments["target_token_ids"], arguments["target_positions"], arguments["common_attn_metadata"]
        )
        self._rows = None if rows is None else rows.with_own_ids()

    def _v1_rows(self, token_ids: torch.Tensor, positions: torch.Tensor, metadata: Any) -> Rows | None:
        batch = self._live.runner.input_batch
        marks = self._spool.marks(batch.req_ids)
        if not marks:
            return None
        starts = [int(start) for start in metadata.query_start_loc_cpu]
        prompts = [int(batch.num_prompt_tokens[index]) for index in range(len(marks))]
        return prompt_rows(marks, token_ids, positions, starts, prompts)

    def _around_v2_speculator(self, arguments: dict[str, Any]) -> None:
        self._rows = None
        batch = arguments["input_batch"]
        if arguments.get("dummy_run") or arguments.get("is_profile"):
            return
        marks = self._spool.marks(batch.req_ids[: batch.num_reqs])
        if marks:
            starts = [int(start) for start in batch.query_start_loc_np[: batch.num_reqs + 1]]
            prompts = [int(length) for length in batch.prefill_len_np[: batch.num_reqs]]
            rows = prompt_rows(marks, batch.input_ids, batch.positions, starts, prompts)
            states = States(slots_of(arguments["aux_hidden_states"]), arguments["last_hidden_states"], "runner v2")
            self._write_aux(rows, states)
            self._write_generated(
                rows, states, lambda: v2_choices(arguments["num_rejected"], arguments["last_sampled"], batch)
            )
            self._rows = rows.with_own_ids()

    def _write_aux(self, rows: Rows, states: States) -> None:
        for session in {mark.session for mark in rows.marks if mark is not None}:
            self._heard(session)
            if not self._spool.described(session, "target"):
                self._spool.describe(session, self._facts())
            if not self.generated:
                generated = sum(span.stop - span.start for span in rows.generated)
                self._spool.count(session, "rows of generated tokens", generated)
        if not states.aux:
            self._spool.fail(rows.marks, "the target hands over no auxiliary states: this server runs no EAGLE-3 head")
            return
        self._spool.write("aux", rows.tensors(states), rows.marks, rows.spans, mode=states.mode)

    def _write_generated(self, rows: Rows, states: States, choices: Callable[[], tuple[Sequence[Choice], str]]) -> None:
        """The rows behind the prompt that this rank accepted; what it chose is asked for where there are any."""
        if not self.generated or not states.aux or all(span.stop == span.start for span in rows.generated):
            return
        import torch

        sampled_ids = rows.token_ids.new_full(rows.token_ids.shape, NOT_CHOSEN)
        spans, rejected = [], 0
        chosen, way = choices()
        for span, choice in zip(rows.generated, chosen[: len(rows.generated)], strict=True):
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
        is_new_way, self._sampled_way = way != self._sampled_way, way
        for session in {mark.session for mark in rows.marks if mark is not None}:
            self._spool.count(session, "rows of rejected drafts", rejected)
            if is_new_way:  # the record was written before anything was sampled
                self._spool.describe(session, self._facts())
        tensors = rows.tensors(states) | {"sampled_ids": sampled_ids}
        self._spool.write("generated", tensors, rows.marks, spans, mode=states.mode)

    def _around_combine(self, arguments: dict[str, Any]) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            tensors = {"token_ids": rows.token_ids, "positions": rows.positions}
            tensors["draft_input"] = next(iter(arguments.values()))
            self._spool.write("draft", tensors, rows.marks, rows.spans, mode="combine_hidden_states")

    def _marks_of(self, arguments: Mapping[str, Any]) -> Sequence[Mark | None]:
        """Ours of a forward that the hook failed in; V2 has the batch in the arguments, V1 in the runner."""
        batch = arguments.get("input_batch") or getattr(self._live.runner, "input_batch", None)
        return self._spool.marks(getattr(batch, "req_ids", ()))
