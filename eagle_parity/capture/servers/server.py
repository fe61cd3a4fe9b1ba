"""What a capture needs of a running server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from eagle_parity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from eagle_parity.capture.live_recording import Acceptance


class NoAnswerError(InputError):
    """The server can't be reached, or has stopped in the middle of an answer."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What a server says of one request.

    Attributes:
        output_tokens: that it generated.
        drafts, draft_tokens, accepted_tokens: of speculation, where the engine counts by request.
        output_ids: the generated tokens; None where the server gives no ids.
    """

    output_tokens: int
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    output_ids: tuple[int, ...] | None = None


class Server(Protocol):
    """One running server."""

    @property
    def engine(self) -> str:
        """``sglang`` or ``vllm``."""
        ...

    @property
    def url(self) -> str:
        """Its address, without a path."""
        ...

    @property
    def version(self) -> str:
        """Of the engine, as the server says it; empty where it doesn't."""
        ...

    @property
    def token(self) -> str:
        """Of the spool: what makes requests ours."""
        ...

    @property
    def spool(self) -> Path | None:
        """The workers' spool, as far as it is known; that path may be another folder on this host, or none."""
        ...

    def architectures(self) -> list[str]:
        """The target's, as its config names them; empty where only the workers say it."""
        ...

    def max_tokens(self) -> int | None:
        """The longest prompt that it takes; None where it doesn't say."""
        ...

    def recording(self, session: str = "", *, generated: bool = False) -> AbstractContextManager[None]:
        """Switches the hooks on, and off again whatever happens, unless another session's capture goes on.

        Args:
            session: whose requests are to be recorded.
            generated: rows of generated tokens as well, where the engine's hook can tell the accepted ones.
        """
        ...

    def encode_text(self, text: str) -> list[int]:
        """Token ids of a text, by the server's own tokenizer."""
        ...

    def encode_messages(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Token ids of a conversation, by the server's own chat template."""
        ...

    def generate(
        self, token_ids: Sequence[int], *, request_id: str, salt: str, new_tokens: int, temperature: float = 0.0
    ) -> Generation:
        """Sends token ids as they are.

        Args:
            token_ids: the prompt.
            request_id: by which the workers know it.
            salt: requests of different salts share no cached prefix.
            new_tokens: to generate, at least 1.
            temperature: 0 decodes greedily.
        """
        ...

    def counters(self) -> Counters | None:
        """The server's own counts of speculation so far; None where each request has them."""
        ...

    def limit(self, session: str) -> str | None:
        """The limit that keeps the hooks from storing more of a session.

        None where there is none, and where it can't be seen from here: never an error, since a capture asks before each
        request.
        """
        ...

    def fetch(self, session: str, into: Path) -> Path:
        """The session's parts: where they lie, or a copy in ``into``.

        Raises:
            InputError: they can't be reached from here; the message says where they lie and how to get them.
        """
        ...

    def discard(self, session: str) -> None:
        """Removes the parts, where the engine gives a way to them; they are in the capture."""
        ...


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts since the server started."""

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    source: str

    def until(self, later: Counters, *, output_tokens: int) -> Acceptance | None:
        """What was counted between the two readings; None where the server was started anew between them."""
        from eagle_parity.capture.live_recording import Acceptance

        pairs = ((getattr(self, name), getattr(later, name)) for name in ("drafts", "draft_tokens", "accepted_tokens"))
        if any(after < before for before, after in pairs):
            return None
        return Acceptance(
            drafts=later.drafts - self.drafts,
            draft_tokens=later.draft_tokens - self.draft_tokens,
            accepted_tokens=later.accepted_tokens - self.accepted_tokens,
            output_tokens=output_tokens,
            source=self.source,
            other_traffic=True,
        )
