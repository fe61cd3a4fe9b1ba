"""What one worker writes for one session: its record, and its parts."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.hook_log import LogOnce, logger, text_of
from eagle_parity.capture.spool.files import (
    COUNTED_KINDS,
    PART_NAME,
    SPOOL_VERSION,
    part_name,
    record_name,
    replacing,
)
from eagle_parity.capture.spool.limits import DISK_FULL, has_room
from eagle_parity.capture.spool.rows import check_rows, copied_rows, row_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import torch

MAX_FAILURES = 10
"""Failures that are written down; a broken hook would add one every forward."""
MAX_FAILURE_CHARS = 500
RECORD_SECONDS = 1.0
"""Between two attempts at a record that isn't up to date: counts grow, and a full disk stays full, at every forward."""
BEYOND_LIMIT = "rows beyond the limit"
"""What the rows are counted as that a limit kept from being stored."""


class Session:
    """What one worker stores for one session.

    Args:
        folder: the session's, made where it isn't there.
        rank: the worker's name.
        max_tokens: rows that are stored.

    Raises:
        OSError: the folder or the record can't be written.
    """

    def __init__(self, folder: Path, rank: str, max_tokens: int) -> None:
        self.folder = folder
        self.rank = rank
        self.max_tokens = max_tokens
        self.facts: dict[str, Any] = {}
        self.skipped: dict[str, int] = {}
        self.failures: list[str] = []
        self.limit: str | None = None
        self.parts = 0
        self.seconds = 0.0  # spent copying and writing: what the server waited for
        self.tokens = 0
        self._is_stale = False  # the record on disk says less than this object knows
        self._attempted = 0.0
        self._log = LogOnce()
        folder.mkdir(mode=0o700, exist_ok=True)
        self._go_on()
        self._replace_record()

    def _go_on(self) -> None:
        """Where this rank recorded for the session before, as a worker that was restarted has, what it told stays.

        The former process may have been killed between a part and the record that counts it: no part is written over.
        """
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            former = json.loads((self.folder / record_name(self.rank)).read_bytes())
            self.parts, self.tokens = int(former["parts"]), int(former["tokens"])
            self.seconds = float(former["seconds"])
            self.skipped = {str(what): int(rows) for what, rows in former["skipped"].items()}
            self.failures = [str(failure) for failure in former["failures"]][:MAX_FAILURES]
            self.limit = None if former["limit"] is None else str(former["limit"])
        found = (PART_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        self.parts = max([self.parts, *(int(part["part"]) + 1 for part in found if part and part["rank"] == self.rank)])

    def record(self) -> dict[str, Any]:
        """What the rank's record says: JSON values, read back by ``eagle_parity.capture.rank_record``."""
        return {
            "spool_version": SPOOL_VERSION,
            "rank": self.rank,
            "session": self.folder.name,
            "pid": os.getpid(),
            "parts": self.parts,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 6),
            "limit": self.limit,
            "skipped": self.skipped,
            "failures": self.failures,
            "facts": self.facts,
        }

    def describe(self, facts: Mapping[str, Any]) -> None:
        """As ``Spool.describe``."""
        self.facts.update(facts)
        self._write_record()

    def count(self, what: str, rows: int) -> None:
        """As ``Spool.count``."""
        is_new = what not in self.skipped
        self.skipped[what] = self.skipped.get(what, 0) + rows
        self._is_stale = True
        if is_new:
            self._write_record()
        else:
            self._refresh_record()

    def close(self) -> None:
        """Brings the record up to date where it isn't: nothing follows."""
        if self._is_stale:
            self._write_record()

    def fail(self, error: BaseException | str) -> None:
        """Writes a failure down: each once, and no more than ``MAX_FAILURES``."""
        text = text_of(error, MAX_FAILURE_CHARS)
        if text not in self.failures and len(self.failures) < MAX_FAILURES:
            self.failures.append(text)
            logger.warning("eagle-parity: the capture hook failed, the server goes on: %s", text)
            self._write_record()

    def write(
        self, kind: str, tensors: Mapping[str, torch.Tensor], ours: Sequence[tuple[int, slice]], mode: str
    ) -> None:
        """Stores a part, unless a limit is reached.

        Args:
            kind: of the part.
            tensors: of the whole batch.
            ours: the session's requests of the batch, by number, each with its rows.
            mode: the engine's word for the forward.

        Raises:
            ValueError: a tensor doesn't hold the batch's rows.
            OSError: the part can't be written.
        """
        import torch
        from safetensors.torch import save_file

        started = time.perf_counter()
        rows = sum(where.stop - where.start for _, where in ours)
        end = max(where.stop for _, where in ours)
        check_rows(tensors, end, alone=len(ours) == 1 and ours[0][1].start == 0)
        reached = self._limit_of(kind, rows, sum(row_bytes(tensor) for tensor in tensors.values()))
        if reached:
            self._stop_at(reached, rows if kind in COUNTED_KINDS else 0)
            return
        stored = {name: copied_rows(tensor, [where for _, where in ours]) for name, tensor in tensors.items()}
        stored["request"] = torch.cat(
            [torch.full((where.stop - where.start,), index) for index, (_, where) in enumerate(ours)]
        )
        header = {"requests": json.dumps([number for number, _ in ours]), "mode": mode, "forward": str(self.parts)}
        with replacing(self.folder / part_name(self.rank, self.parts, kind)) as temporary:
            save_file(stored, temporary, metadata=header)
        self.parts += 1
        if kind in COUNTED_KINDS:
            self.tokens += rows
        self.seconds += time.perf_counter() - started
        self._write_record()

    def _limit_of(self, kind: str, rows: int, row_size: int) -> str | None:
        """The limit that keeps these rows from being stored: one that was reached before, or is by them."""
        if self.limit is not None:
            return self.limit
        if kind in COUNTED_KINDS and self.tokens + rows > self.max_tokens:
            return f"max_tokens={self.max_tokens}"
        return None if has_room(self.folder, rows * row_size) else DISK_FULL

    def _stop_at(self, limit: str, rows: int) -> None:
        """Tells at once which limit was reached: no part may follow, and whoever sends waits for no more."""
        is_reached = self.limit is None
        self.limit = limit
        if is_reached:
            self.skipped[BEYOND_LIMIT] = self.skipped.get(BEYOND_LIMIT, 0) + rows
            self._write_record()
        else:
            self.count(BEYOND_LIMIT, rows)

    def _write_record(self) -> None:
        self._is_stale, self._attempted = True, time.monotonic()
        try:
            self._replace_record()
            self._is_stale = False
        except OSError as error:
            # The former record stands. What has filled the disk may go: the next forward of ours tries again.
            self._log.warn(f"the record of {self.rank} can't be written: {error}")

    def _refresh_record(self) -> None:
        if self._is_stale and time.monotonic() - self._attempted >= RECORD_SECONDS:
            self._write_record()

    def _replace_record(self) -> None:
        with replacing(self.folder / record_name(self.rank)) as temporary:
            temporary.write_text(json.dumps(self.record(), default=str), "utf-8")
