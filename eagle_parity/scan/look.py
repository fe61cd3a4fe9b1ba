"""One file of a set: is it whole, what does it hold, and what are some of its rows like.

Files are read and never mapped: somebody may be writing to the set.

Shape letters: T rows, S states (slots, and the last state behind them), H hidden size, N rows of the sample.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from eagle_parity.errors import InputError, ParityError
from eagle_parity.hidden_states import LastStateRule
from eagle_parity.numerics.row_sample import CAPACITY, RowSample, priorities_of
from eagle_parity.numerics.set_moments import Sums
from eagle_parity.numerics.sinks import SAMPLED_ROWS, choose_sinks, limits_of
from eagle_parity.quoting import one_line
from eagle_parity.readers import recognise
from eagle_parity.readers.containers import UnreadableFileError
from eagle_parity.readers.sequence import read_sequence
from eagle_parity.scan.problem_kinds import DEAD, EMPTY_MASK, NO_MASK, NON_FINITE, ROW_COUNT, UNREADABLE
from eagle_parity.scan.read_states import read_states
from eagle_parity.scan.set_state import DIGEST_BYTES, NO_STAMP, STAMP_BYTES, Counts, LayoutKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eagle_parity.hidden_states import Layout, Rows, StateSequence
    from eagle_parity.readers.containers.stored_tensor import Source
    from eagle_parity.readers.reader import Recognised
    from eagle_parity.scan.shards import Shards, Stamp

DEFAULT_ROWS = 64
"""Rows of a sequence that are looked at: enough to see which layer they are of, and little beside opening the file."""
RUNS = 4
"""The rows lie in so many runs: the first rows, where the sink is, and others at even distances."""
BLOCK_BYTES = 16 * 1024 * 1024
"""Of states in float32 that are looked at at once."""
_FLOAT32_BYTES = 4
_SUMMED_ROWS = 32
_HUGE = 1e17
"""Squares of 32 greater numbers could leave float32's range."""

Float32 = npt.NDArray[np.float32]


@dataclass
class Measured:
    """The numbers of one file's rows.

    Attributes:
        sums: of the rows that are no sinks and have no NaN.
        least_SH, greatest_SH: of the same.
        sample: of the same.
    """

    sums: Sums
    least_SH: Float32
    greatest_SH: Float32
    sample: RowSample


@dataclass
class FileLook:
    """What was seen of one file.

    Attributes:
        name: the file's.
        stamp: a digest of what the storage says of its version.
        layout: None where it can't be read.
        counts: to be added.
        problems: kind, name and reason.
        shortest, longest: tokens of its sequences.
        digests: of token ids: the sequence's number in the file, and ``DIGEST_BYTES``.
        measured: None where no row was looked at.
    """

    name: str
    stamp: bytes = NO_STAMP
    layout: LayoutKey | None = None
    counts: Counts = field(default_factory=Counts)
    problems: list[tuple[str, str, str]] = field(default_factory=list)
    shortest: int | None = None
    longest: int | None = None
    digests: list[tuple[int, bytes]] = field(default_factory=list)
    measured: Measured | None = None


def look_at_file(shards: Shards, name: str, *, rows: int | None) -> FileLook:
    """Looks at one file; whatever is wrong with it is said in what comes back.

    Args:
        shards: the set.
        name: of the file.
        rows: of each sequence that are looked at; None for all.
    """
    before: Stamp | None = None
    try:
        before = shards.stamp(name)
        table = shards.table(name)
        recognised = recognise(table, shards.companions(name))
        look = _Looker(name, recognised, rows).look(table.source)
        if shards.stamp(name) != before:
            return _unreadable(name, before, "it changed while it was read: wait until its writer is done")
    except FileNotFoundError:
        return _unreadable(name, before, "it vanished: it was in the list, and is gone, or a link to nothing")
    except (UnreadableFileError, InputError, OSError) as error:
        return _unreadable(name, before, str(error))
    except ParityError:
        raise  # an extra that isn't there, a storage that is gone: of all files
    except Exception as error:  # noqa: BLE001  a file that no reader foresaw must not end the scan of the others
        return _unreadable(name, before, f"can't be looked at ({type(error).__name__}: {one_line(error)})")
    look.counts.files, look.counts.bytes = 1, before.size
    look.stamp = digest_of(before)
    return look


def digest_of(stamp: Stamp) -> bytes:
    """A stamp as ``STAMP_BYTES``."""
    return hashlib.blake2b(f"{stamp.size} {stamp.version}".encode(), digest_size=STAMP_BYTES).digest()


def seed_of(name: str) -> int:
    """64 bits of a name: they say where a file's rows stand in a sample, and which random part of the set it is in."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def _unreadable(name: str, stamp: Stamp | None, reason: str) -> FileLook:
    counts = Counts(files=1, bytes=0 if stamp is None else stamp.size)
    told = NO_STAMP if stamp is None else digest_of(stamp)
    return FileLook(name, told, counts=counts, problems=[(UNREADABLE, name, reason)])


class _Looker:
    """Goes through the sequences of one file."""

    def __init__(self, name: str, recognised: Recognised, rows: int | None) -> None:
        layout = recognised.layout
        self._recognised = recognised
        self._rows = rows
        self._seed = seed_of(name)
        self._states = layout.slots + (layout.last_state is LastStateRule.STORED)
        self._look = FileLook(name, layout=key_of(layout))
        shape = self._states, layout.hidden_size
        self._sums = Sums.zeros(*shape)
        self._least_SH = np.full(shape, np.inf, np.float32)
        self._greatest_SH = np.full(shape, -np.inf, np.float32)
        self._sample = RowSample(*shape)

    def look(self, source: Source) -> FileLook:
        """At all of them."""
        recognised = self._recognised
        for index in range(recognised.count):
            name = self._look.name if recognised.nth is None else f"{self._look.name}#{index}"
            sequence = read_sequence(name, source, recognised.at(index))
            self._add(sequence, index)
        look = self._look
        if self._sums.rows:
            self._sums.files = 1
            look.measured = Measured(self._sums, self._least_SH, self._greatest_SH, self._sample)
        return look

    def _add(self, sequence: StateSequence, index: int) -> None:
        look, counts = self._look, self._look.counts
        states = (*sequence.slots, *(() if sequence.last_state is None else (sequence.last_state,)))
        rows = min((state.tokens for state in states), default=0)
        counts.sequences += 1
        counts.rows += rows
        self._check_ids(sequence, rows, [state.tokens for state in states])
        self._check_mask(sequence)
        measured = self._measure(sequence.name, states, rows, index) if rows else ()
        bad = np.concatenate([np.zeros(0, np.int64), *measured])
        if len(bad):
            looked_at = rows if self._rows is None else min(rows, self._rows)
            reason = f"{len(bad)} of {looked_at} rows have NaN or infinity, first at position {bad[0]}"
            look.problems.append((NON_FINITE, sequence.name, reason))
        counts.bad_rows += len(bad)

    def _check_ids(self, sequence: StateSequence, rows: int, each: list[int]) -> None:
        look, ids = self._look, sequence.token_ids
        tokens = rows if ids is None else len(ids)
        look.counts.tokens += tokens
        look.shortest = tokens if look.shortest is None else min(look.shortest, tokens)
        look.longest = tokens if look.longest is None else max(look.longest, tokens)
        if ids is not None and tokens:  # without a token there is no text that could be another's
            digest = hashlib.blake2b(ids.numpy().tobytes(), digest_size=DIGEST_BYTES).digest()
            look.digests.append((look.counts.sequences - 1, digest))
        if not tokens:
            look.problems.append((ROW_COUNT, sequence.name, "a sequence without a token"))
        elif any(count != tokens for count in each):
            told = ", ".join(str(count) for count in dict.fromkeys(each))
            look.problems.append((ROW_COUNT, sequence.name, f"{tokens} tokens, states of {told} rows"))

    def _check_mask(self, sequence: StateSequence) -> None:
        look, mask = self._look, sequence.loss_mask
        if mask is None:
            if sequence.no_loss_mask:
                look.problems.append((NO_MASK, sequence.name, sequence.no_loss_mask))
            return
        tokens = len(mask) if sequence.token_ids is None else len(sequence.token_ids)
        if len(mask) != tokens:
            look.problems.append((ROW_COUNT, sequence.name, f"{tokens} tokens, a loss mask of {len(mask)}"))
        trained_on = int((mask != 0).sum())
        look.counts.mask_tokens += len(mask)
        look.counts.masked_tokens += len(mask) - trained_on
        if len(mask) and not trained_on:
            look.problems.append((EMPTY_MASK, sequence.name, f"none of its {len(mask)} tokens is trained on"))

    def _measure(self, name: str, states: tuple[Rows, ...], rows: int, index: int) -> Iterator[npt.NDArray[np.int64]]:
        """Adds the rows that are to be looked at; gives the positions of those of each block that aren't finite."""
        limits_S: npt.NDArray[np.float64] | None = None
        greatest_S = np.full(self._states, np.nan)  # stays so where no row is a number
        for runs in self._blocks(rows):
            block_TSH = torch.cat([read_states(states, low, high) for low, high in runs])
            positions_T = np.concatenate([np.arange(low, high) for low, high in runs])
            norms_TS = torch.linalg.vector_norm(block_TSH, dim=2, dtype=torch.float64).numpy()
            finite_T = np.isfinite(norms_TS).all(1)
            if limits_S is None:
                limits_S = limits_of(torch.from_numpy(norms_TS.T)).numpy()
            sinks_T = _sinks(norms_TS, limits_S)
            np.fmax(greatest_S, np.fmax.reduce(norms_TS, axis=0), out=greatest_S)
            self._look.counts.sampled_rows += len(positions_T)
            self._look.counts.sink_rows += int(sinks_T.sum())
            self._add_rows(block_TSH, finite_T & ~sinks_T, positions_T, index)
            yield positions_T[~finite_T]
        for place in np.flatnonzero(greatest_S == 0):
            state = f"slot {place}" if place < self._recognised.layout.slots else "the last state"
            self._look.problems.append((DEAD, name, f"{state} is zero in every row that was looked at"))

    def _blocks(self, rows: int) -> Iterator[list[tuple[int, int]]]:
        """Runs of rows that are looked at together, in blocks that don't grow with the sequence."""
        row_bytes = self._states * self._recognised.layout.hidden_size * _FLOAT32_BYTES
        # The first block has to show the median of the sequence's first rows.
        step = max(SAMPLED_ROWS, BLOCK_BYTES // row_bytes)
        runs = [(0, rows)] if self._rows is None else sample_runs(rows, self._rows)
        if sum(high - low for low, high in runs) <= step:
            yield runs  # a sample at once
            return
        for low, high in runs:
            for start in range(low, high, step):
                yield [(start, min(high, start + step))]

    def _add_rows(
        self,
        block_TSH: torch.Tensor,
        kept_T: npt.NDArray[np.bool_],
        positions_T: npt.NDArray[np.int64],
        index: int,
    ) -> None:
        count = int(kept_T.sum())
        if not count:
            return
        if count < len(kept_T):
            block_TSH = block_TSH[torch.from_numpy(kept_T)]
            positions_T = positions_T[kept_T]
        self._sums.rows += count
        self._sums.sums_2SH[0] += _sum(block_TSH)
        least_SH, greatest_SH = block_TSH.amin(0).numpy(), block_TSH.amax(0).numpy()
        huge = max(-least_SH.min(), greatest_SH.max()) > _HUGE
        wide_TSH = block_TSH.double() if huge else block_TSH
        self._sums.sums_2SH[1] += _sum(wide_TSH * wide_TSH)
        np.minimum(self._least_SH, least_SH, out=self._least_SH)
        np.maximum(self._greatest_SH, greatest_SH, out=self._greatest_SH)
        # Sequences of one file have priorities far apart: the seed is mixed with the index first.
        priorities_T = priorities_of(self._seed ^ (index << 40), positions_T)
        wanted = np.flatnonzero(self._sample.wanted(priorities_T))
        if len(wanted) > CAPACITY:  # any sample keeps these before the others
            wanted = wanted[np.argpartition(priorities_T[wanted], CAPACITY)[:CAPACITY]]
        self._sample.update(priorities_T[wanted], block_TSH[torch.from_numpy(wanted)].numpy(), seen=count)


def _sinks(norms_TS: npt.NDArray[np.float64], limits_S: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Which of a block's rows are sinks: a bounded share of them, as more would be the signal itself."""
    sinks_T = np.zeros(len(norms_TS), np.bool_)
    limits_S = np.where(limits_S > 0, limits_S, np.inf)  # of rows that are mostly zero, none stands out
    standing = np.flatnonzero(((norms_TS > limits_S) & np.isfinite(norms_TS)).any(1))
    if len(standing):
        norms_ST = torch.from_numpy(norms_TS[standing].T)
        sinks_T[standing] = choose_sinks(norms_ST, torch.from_numpy(limits_S), len(norms_TS)).numpy()
    return sinks_T


def sample_runs(rows: int, wanted: int) -> list[tuple[int, int]]:
    """Where so many rows of a sequence lie: at its beginning, where the sink is, and at even distances behind."""
    if rows <= wanted:
        return [(0, rows)]
    runs = min(RUNS, wanted)
    lengths = [wanted // runs + (run < wanted % runs) for run in range(runs)]
    starts = [(rows - lengths[-1]) * run // max(1, runs - 1) for run in range(runs)]
    return [(start, start + length) for start, length in zip(starts, lengths, strict=True)]


def _sum(block_TSH: torch.Tensor) -> npt.NDArray[np.float64]:
    """Over the rows: in float32 for 32 of them, within 1e-6 of the exact sum, then in float64."""
    total_SH: npt.NDArray[np.float64] = np.zeros(block_TSH.shape[1:])
    whole = len(block_TSH) // _SUMMED_ROWS * _SUMMED_ROWS
    if whole:
        parts = block_TSH[:whole].view(-1, _SUMMED_ROWS, *block_TSH.shape[1:]).sum(1)
        total_SH += parts.double().sum(0).numpy()
    total_SH += block_TSH[whole:].double().sum(0).numpy()
    return total_SH


def key_of(layout: Layout) -> LayoutKey:
    """What files must share to be one set."""
    return LayoutKey(
        layout.format,
        layout.slots,
        layout.hidden_size,
        layout.dtype,
        str(layout.last_state),
        None if layout.declared is None else str(layout.declared),
    )


def killed_its_reader(shards: Shards, name: str) -> FileLook:
    """A file with which the process that read it ended, each time."""
    try:
        stamp = shards.stamp(name)
    except OSError:
        stamp = None
    reason = "the process that read it was killed, each time: out of memory, or a damaged disk"
    return _unreadable(name, stamp, reason)
