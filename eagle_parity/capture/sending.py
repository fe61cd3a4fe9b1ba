"""Sends token sequences to a server, each under an id of ours, and keeps what was sent: rows are looked up by it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec

from eagle_parity.capture.format import GENERATE, name_of, text_of
from eagle_parity.capture.live_recording import Acceptance
from eagle_parity.capture.manifest_file import MAX_MANIFEST_BYTES
from eagle_parity.capture.prompts import SkippedSequence, TokenSequence
from eagle_parity.capture.servers.server import NoAnswerError
from eagle_parity.capture.spool.request_ids import MAX_NUMBER, is_session, new_session, request_id
from eagle_parity.errors import InputError, ParityError
from eagle_parity.files import write_atomically
from eagle_parity.input_files import read_bounded
from eagle_parity.quoting import one_line, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eagle_parity.capture.prompts import TokenSource
    from eagle_parity.capture.servers.server import Counters, Generation, Server

Condition: TypeAlias = Literal["batch", "chunk", "prefix", "generate"]
CONDITIONS: tuple[Condition, ...] = ("batch", "chunk", "prefix", "generate")
"""What can be recorded beside the sequences alone: together at once, split by the scheduler, behind a warm prefix, and
what was generated behind each."""
MIN_GENERATED_TOKENS = 2
"""The last generated token is never computed: with one alone there is no row."""

CONCURRENT_REQUESTS = 8
"""Of the conditions that want a full batch: below any engine's limit of running requests."""
MIN_PREFIX_TOKENS = 2
"""A warm prefix needs a token before the rows that are compared, and these need one."""
SILENCES = 2
"""Requests without an answer, one after the other, after which the server is taken to be gone."""
_GONE = "not sent: the server doesn't answer any more"
THE_REST = "(the sequences after these)"
MAX_ARCHITECTURES = 16
"""Names of a target's class that are kept; a config has one."""
REQUESTS_NAME = "requests.json"
_KIND: Literal["eagle-parity-requests"] = "eagle-parity-requests"


_Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class SentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request that was answered.

    Attributes:
        number: in its id.
        name: of its sequence.
        token_ids: as they were sent.
        loss_mask: where their source has one.
        condition: None for a sequence that was sent alone.
        output_ids: what was generated, as the server answered it; None where it gives no ids.
    """

    number: Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
    name: str
    token_ids: list[_Int32]
    loss_mask: list[_Int32] | None = None
    condition: Condition | None = None
    output_ids: list[int] | None = None


class Sent(msgspec.Struct, kw_only=True):
    """Everything that was sent in one session.

    Attributes:
        engine: ``sglang`` or ``vllm``.
        version: as the server states it; empty where it doesn't.
        server: its address.
        session: by which the workers name their files.
        architectures: of the target, as the server names them; empty where it doesn't.
        conditions: as they were asked for.
        temperature: of the generation; 0 is greedy.
        requests: in the order in which they were answered.
        skipped: sequences that weren't sent, with reasons.
        lost: sequences that were sent and not answered, or not sent because the ones before them weren't, with reasons:
            the capture isn't the one that was asked for.
        cut_short: conditions of which not all was sent, with reasons.
        acceptance: what the server counted while the sequences were sent alone.
    """

    schema_version: Literal[1] = 1
    kind: Literal["eagle-parity-requests"] = _KIND
    engine: str
    version: str
    server: str
    session: str
    architectures: list[str] = []
    conditions: list[Condition] = []
    temperature: float = 0.0
    requests: list[SentRequest] = []
    skipped: list[Annotated[tuple[str, str], msgspec.Meta(description="name, reason")]] = []
    lost: list[Annotated[tuple[str, str], msgspec.Meta(description="name, reason")]] = []
    cut_short: dict[Condition, str] = {}
    acceptance: Acceptance | None = None

    def under(self, condition: Condition | None) -> list[SentRequest]:
        """The requests of one condition, in the order of their numbers."""
        return sorted((r for r in self.requests if r.condition == condition), key=lambda request: request.number)

    def that_generated(self) -> list[SentRequest]:
        """Those that were sent alone and generated enough for a row."""
        return [r for r in self.under(None) if len(r.output_ids or ()) >= MIN_GENERATED_TOKENS]

    def save(self, folder: str | Path) -> None:
        """Keeps it for a later ``--from-parts``; the file holds the prompts, so it is made with mode 0600."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_atomically(Path(folder) / REQUESTS_NAME, msgspec.json.encode(self), private=True)


def read_sent(folder: str | Path) -> Sent:
    """What ``Sent.save`` kept.

    Raises:
        InputError: there is no such file, or it is none.
    """
    path = Path(folder) / REQUESTS_NAME
    expected = f"what a capture left that could not reach its parts, {REQUESTS_NAME}"
    try:
        sent = msgspec.json.decode(read_bounded(path, MAX_MANIFEST_BYTES, expected=expected), type=Sent)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(path, f"not JSON of that kind ({one_line(error)})", expected=expected) from error
    if not is_session(sent.session):  # it becomes a folder's name
        raise InputError(path, f"the session {plain(sent.session)}", expected=expected)
    for request in sent.requests:
        if not request.token_ids or len(request.loss_mask or request.token_ids) != len(request.token_ids):
            found = f"request {request.number} has no token ids, or another number of them in its loss mask"
            raise InputError(path, found, expected=expected)
    return sent


def send_sequences(
    server: Server,
    sequences: TokenSource,
    *,
    conditions: Sequence[Condition] = (),
    new_tokens: int,
    temperature: float = 0.0,
    on_sequence: Callable[[str], None],
) -> Sent:
    """Sends the sequences one by one, then once more under each condition.

    Args:
        server: where to.
        sequences: the tokens; a ``SkippedSequence`` among them is passed on.
        conditions: see ``CONDITIONS``.
        new_tokens: generated after each sequence.
        temperature: at which; 0 is greedy.
        on_sequence: called with a sequence's name before it is sent.

    Raises:
        InputError: not one sequence was answered.
        KeyboardInterrupt: Ctrl-C, before any was. Later on it ends the sending, and the rest is told as lost.
    """
    sender = _Sender(server, new_tokens, temperature, on_sequence)
    with server.recording(sender.sent.session, generated=GENERATE in conditions):
        try:
            answered = sender.send_alone(sequences)
            for condition in conditions:
                sender.send_under(condition, answered)
        except KeyboardInterrupt:
            if not sender.sent.requests:
                raise
            sender.sent.lost.append((THE_REST, "not sent: interrupted"))
    sender.sent.conditions = list(conditions)
    return sender.sent


class _Sender:
    def __init__(self, server: Server, new_tokens: int, temperature: float, on_sequence: Callable[[str], None]) -> None:
        self.server = server
        self.new_tokens = new_tokens
        self.on_sequence = on_sequence
        self.sent = Sent(
            engine=server.engine,
            version=name_of(server.version),
            server=server.url,
            session=new_session(),
            architectures=[name_of(name) for name in server.architectures()[:MAX_ARCHITECTURES]],
            temperature=temperature,
        )
        self._longest = server.max_tokens()
        self._numbers = 0
        self._silent = 0
        self._limit: str | None = None
        self._lock = threading.Lock()

    def send_alone(self, sequences: TokenSource) -> list[TokenSequence]:
        """Gives the ones that were answered. Of these alone the acceptance is: a condition sends them once more."""
        before = self.server.counters()
        generations: list[Generation] = []
        try:
            return self._send_alone(sequences, generations)
        finally:
            self.sent.acceptance = self._acceptance(before, generations)

    def _send_alone(self, sequences: TokenSource, generations: list[Generation]) -> list[TokenSequence]:
        answered: list[TokenSequence] = []
        for sequence in sequences:
            if isinstance(sequence, SkippedSequence):
                self.sent.skipped.append((name_of(sequence.name), text_of(sequence.reason)))
                continue
            stopped = self._stopped()
            if stopped is not None:
                self.sent.lost.append((THE_REST, stopped))
                break
            sequence = replace(sequence, name=name_of(sequence.name))  # noqa: PLW2901  the same one
            self.on_sequence(sequence.name)
            unfit = _unfit(sequence, self._longest)
            if unfit is not None:
                self.sent.skipped.append((sequence.name, unfit))
                continue
            generation = self._send(sequence, None)
            if isinstance(generation, ParityError):
                self.sent.lost.append((sequence.name, one_line(generation)))
            else:
                answered.append(sequence)
                generations.append(generation)
            if self._is_gone:  # asked before the next sequence, for whose tokens the server may be asked
                self.sent.lost.append((THE_REST, _GONE))
                break
        if not answered:
            left_out = [*self.sent.lost, *self.sent.skipped]
            told = "; the first: {}: {}".format(*left_out[0]) if left_out else ""
            raise InputError(
                self.server.url,
                f"nothing was captured, {len(left_out)} sequences were left out{told}",
                expected="token sequences that the server answers",
            )
        return answered

    def send_under(self, condition: Condition, sequences: Sequence[TokenSequence]) -> None:
        """A sequence that isn't answered under a condition is missing there, and nowhere else."""
        if condition == GENERATE:
            return  # it is of the sequences that were sent alone
        if condition == "prefix":
            for sequence in sequences:
                if len(sequence.token_ids) >= MIN_PREFIX_TOKENS and self._goes_on(condition):
                    self.on_sequence(f"{sequence.name} behind a warm prefix")
                    self._send(sequence, condition, warm_tokens=len(sequence.token_ids) // 2)
            return
        self.on_sequence(f"{len(sequences)} sequences at once")
        numbers = [self._next_numbers() for _ in sequences]  # in their order, whichever is sent first

        def send(sequence: TokenSequence, own: tuple[int, int]) -> None:
            if self._goes_on(condition):
                self._send(sequence, condition, numbers=own)

        with ThreadPoolExecutor(max_workers=CONCURRENT_REQUESTS) as pool:
            list(pool.map(send, sequences, numbers))

    @property
    def _is_gone(self) -> bool:
        return self._silent >= SILENCES

    def _goes_on(self, condition: Condition) -> bool:
        stopped = self._stopped()
        if stopped is not None:
            self.sent.cut_short[condition] = stopped
        return stopped is None

    def _stopped(self) -> str | None:
        """Why the next request would be pointless: each would take its whole time, or nothing is recorded of it."""
        if self._is_gone:
            return _GONE
        if self._limit is None and self._numbers:
            self._limit = self.server.limit(self.sent.session)
        return None if self._limit is None else f"not sent: the hook stopped at its limit ({self._limit})"

    def _send(
        self,
        sequence: TokenSequence,
        condition: Condition | None,
        *,
        warm_tokens: int = 0,
        numbers: tuple[int, int] | None = None,
    ) -> Generation | ParityError:
        """The answer, or why there was none. A salt of its own keeps the cached prefixes of other requests out."""
        number, warm_number = numbers or self._next_numbers()
        salt = f"{self.sent.session}.{number}"
        try:
            if warm_tokens:
                # Under a number of its own: its rows are of no interest, that they are cached is.
                self._generate(sequence.token_ids[:warm_tokens], warm_number, salt, new_tokens=1)
            generation = self._generate(sequence.token_ids, number, salt, new_tokens=self._room(sequence))
        except ParityError as error:
            with self._lock:
                self._silent = self._silent + 1 if isinstance(error, NoAnswerError) else 0
            return error
        request = SentRequest(
            number=number,
            name=sequence.name,
            token_ids=list(sequence.token_ids),
            loss_mask=None if sequence.loss_mask is None else list(sequence.loss_mask),
            condition=condition,
            output_ids=None if generation.output_ids is None else list(generation.output_ids),
        )
        with self._lock:
            self._silent = 0
            self.sent.requests.append(request)
        return generation

    def _room(self, sequence: TokenSequence) -> int:
        """Tokens to generate: servers refuse a prompt that leaves less room than is asked for."""
        if self._longest is None:
            return self.new_tokens
        return max(1, min(self.new_tokens, self._longest + 1 - len(sequence.token_ids)))

    def _generate(self, token_ids: Sequence[int], number: int, salt: str, *, new_tokens: int) -> Generation:
        mark = request_id(self.server.token, self.sent.session, number)
        return self.server.generate(
            token_ids, request_id=mark, salt=salt, new_tokens=new_tokens, temperature=self.sent.temperature
        )

    def _next_numbers(self) -> tuple[int, int]:
        """Of a sequence's request, and of the one that warms its prefix."""
        with self._lock:
            self._numbers += 2
            return self._numbers - 2, self._numbers - 1

    def _acceptance(self, before: Counters | None, generations: Sequence[Generation]) -> Acceptance | None:
        """By the server's counters where it has them, else by what each answer says."""
        output_tokens = sum(generation.output_tokens for generation in generations)
        if before is not None:
            with suppress(ParityError):  # the server died meanwhile: what it recorded is still there
                after = self.server.counters()
                return None if after is None else before.until(after, output_tokens=output_tokens)
        own = [g for g in generations if g.drafts is not None and g.accepted_tokens is not None]
        if not own:
            return None
        drafted = [g.draft_tokens for g in own if g.draft_tokens is not None]
        return Acceptance(
            drafts=sum(g.drafts or 0 for g in own),
            draft_tokens=sum(drafted) if len(drafted) == len(own) else None,
            accepted_tokens=sum(g.accepted_tokens or 0 for g in own),
            output_tokens=sum(g.output_tokens for g in own),
            source="each answer's meta_info: spec_*",
            other_traffic=False,
        )


def _unfit(sequence: TokenSequence, longest: int | None) -> str | None:
    tokens = len(sequence.token_ids)
    if not tokens:
        return "no tokens"
    if longest is not None and tokens > longest:
        return f"{tokens:,} tokens; the server takes {longest:,}: pass --max-tokens"
    return None
