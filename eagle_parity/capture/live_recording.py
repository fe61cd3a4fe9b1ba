"""What a capture's manifest says of the running server that was captured."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from eagle_parity.capture.format import Name, Text

_RANK_NAME = re.compile(r"[a-z0-9.]{1,40}")

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**62)]
"""Beyond it nothing is a number of a server's, and not every one is a float."""


class LiveRank(msgspec.Struct, frozen=True, kw_only=True):
    """One worker of the server, as it described itself.

    Attributes:
        name: unique within the server, ``tp1``.
        group: ranks of one group compute the same rows; under attention data parallelism there are several.
        group_size: ranks that such a group has.
        parallel: sizes and ranks, ``{"tp_size": 2, "tp_rank": 1, ...}``.
        tokens: rows that it stored.
        seconds: that its hook took to copy and write them; None where it doesn't say.
        limit: why it stopped storing; None where it didn't.
        failures: of its hook.
        skipped: rows that it saw and did not store, by reason.
    """

    name: Annotated[str, msgspec.Meta(pattern=rf"^{_RANK_NAME.pattern}\Z")]
    group: Name
    group_size: Annotated[int, msgspec.Meta(ge=1, le=65_536)]
    parallel: dict[Name, int]
    tokens: int
    seconds: float | None = None
    limit: Text | None = None
    failures: list[Text] = []
    skipped: dict[Name, int] = {}


class IncompleteSequence(msgspec.Struct, frozen=True, kw_only=True):
    """A sequence that was sent and that no rank recorded whole.

    Attributes:
        name: as for a sequence.
        reason: which rows are missing, and what to change.
    """

    name: Name
    reason: Text


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """What the server counted of drafts while it was captured.

    Attributes:
        drafts: verifications, each of one draft.
        draft_tokens: tokens that were drafted; None where the release doesn't count them.
        accepted_tokens: of these.
        output_tokens: that the server generated.
        source: where the counts stand.
        other_traffic: whether they include requests that weren't the capture's.
    """

    drafts: _Count
    accepted_tokens: _Count
    output_tokens: _Count
    source: Text
    other_traffic: bool
    draft_tokens: _Count | None = None

    @property
    def length(self) -> float | None:
        """Tokens a verification: the accepted ones and the one that the target adds; None without any."""
        return None if not self.drafts else 1 + self.accepted_tokens / self.drafts

    @property
    def rate(self) -> float | None:
        """Share of the drafted tokens that were accepted."""
        return None if not self.draft_tokens else self.accepted_tokens / self.draft_tokens

    def told(self) -> dict[str, Any]:
        """The counts and what follows from them, as results have them under ``measurements.acceptance``."""
        return {**msgspec.to_builtins(self), "length": self.length, "rate": self.rate}


class LiveRecording(msgspec.Struct, frozen=True, kw_only=True):
    """What only a running server can say.

    Attributes:
        server: its address.
        session: the requests' mark, which the files of its spool bear too.
        tap: where in the engine the states were taken.
        target_class, draft_class: Python classes of the live modules.
        layer_set: what the live target captures, in the engine's own counting: ``list`` and ``flags``.
        draft_config: of the draft as the engine loaded it.
        settings: options of the server that decide what a capture can see.
        variants: by which of a release's ways the hook read what moved between releases.
        ranks: every worker that stored something.
        incomplete: the sequences that aren't in the capture.
        acceptance: None where the server counts nothing.
        conditions: what was recorded beside, each in ``conditions/<condition>/``.
        skipped_conditions: what was asked for and could not be, with the reason.
        not_written: by rank, what it recorded and has no place in the capture, or lacks beside the others.
    """

    server: Text
    session: Name
    tap: Text
    target_class: Text | None = None
    draft_class: Text | None = None
    layer_set: dict[Name, list[int]] | None = None
    draft_config: dict[str, Any] | None = None
    settings: dict[Name, bool | _Integer | float | str | None] = {}
    variants: dict[Name, Text] = {}
    ranks: list[LiveRank] = []
    incomplete: list[IncompleteSequence] = []
    acceptance: Acceptance | None = None
    conditions: list[Name] = []
    skipped_conditions: dict[Name, Text] = {}
    not_written: dict[Name, Text] = {}
