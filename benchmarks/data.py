"""The data that is measured on: generated once, kept in the cache, at rest since an hour.

``prepare`` runs this module as a process of its own, so that torch's memory isn't counted for what is measured later.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.process import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

VERSION = 1
"""Of what is generated: data of another one are made anew."""

AT_REST = 3600
"""Seconds: the tool maps files that nobody has written to for a minute, and reads others."""

TOKENS, STATES, WIDTH = 2048, 4, 1536
BOUNDARIES = "3,31,59,61"
"""What the four states are said to be: otherwise whether the final one is a slot would have to be measured."""
NOISE = 0.003
SCALES = (0.08, 0.6, 3.0, 3.5)
"""Of a state's dimensions, growing with the depth as in real models."""
MASSIVE_DIMENSIONS, MASSIVE = 4, 25.0
SINK = 8.0
"""The first token of a sequence stands out."""

SMALL_TOKENS, SMALL_WIDTH = 16, 16

REFERENCE_BOUNDARIES, REFERENCE_HIDDEN, REFERENCE_TOKENS = 62, 7168, 4096
REFERENCE_SEQUENCES = 4
WIRING = (3, 31, 59)
UPDATE = 0.2
"""What a layer adds, of a state's norm: neighbouring boundaries are near each other, as in real models."""

VOCABULARY = 32_000
_MARK = "made.json"


def prepare(cache: Path, kind: str, count: int) -> Path:
    """A folder with data of a kind; made where it isn't there yet.

    Args:
        cache: where data are kept.
        kind: ``pairs``, ``dumps``, ``small`` or ``reference``.
        count: files a side; of ``reference``, 1.
    """
    folder = cache / f"{kind}-{count}"
    mark = {"version": VERSION}
    if not (folder / _MARK).exists() or json.loads((folder / _MARK).read_text()) != mark:
        print(f"generating {folder.name} ...", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        run([sys.executable, "-m", "benchmarks.data", kind, str(folder), str(count)])
        (folder / _MARK).write_text(json.dumps(mark))
    return folder


def linked(pairs: Path, cache: Path, copies: int) -> Path:
    """Both sides of ``pairs`` so many times over, as further names of the same files.

    A sequence's repeats have the same token ids, and are paired by their names.
    """
    folder = cache / f"{pairs.name}-x{copies}"
    shutil.rmtree(folder, ignore_errors=True)
    for side in ("trained", "live"):
        (folder / side).mkdir(parents=True)
        for path in sorted((pairs / side).iterdir()):
            for copy in range(copies):
                os.link(path, folder / side / f"{path.stem}.{copy}.safetensors")
    return folder


def shards(folder: Path) -> list[Path]:
    """The files of one side."""
    return sorted(folder.rglob("*.safetensors"))


# In a process of its own --------------------------------------------------------------------------------------------


def _pairs(folder: Path, count: int) -> None:
    """Shards as vLLM's connector writes them, ``[T, S, H]`` and token ids; the live side has a little noise."""
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(0)
    scale_SH = torch.exp(0.35 * torch.randn(STATES, WIDTH, generator=generator)) * torch.tensor(SCALES)[:, None]
    for state in range(STATES):
        scale_SH[state, torch.randperm(WIDTH, generator=generator)[:MASSIVE_DIMENSIONS]] *= MASSIVE
    mean_SH = 0.15 * scale_SH * torch.randn(STATES, WIDTH, generator=generator)
    noise_TSH = NOISE * torch.randn(TOKENS, STATES, WIDTH, generator=generator)
    for side in ("trained", "live"):
        (folder / side).mkdir()
    for number in range(count):
        x_TSH = torch.randn(TOKENS, STATES, WIDTH, generator=generator).mul_(scale_SH).add_(mean_SH)
        x_TSH[0] *= SINK
        token_ids = torch.randint(VOCABULARY, (TOKENS,), generator=generator)
        y_TSH = x_TSH * (1 + noise_TSH.roll(97 * number, dims=0))
        for side, z_TSH in (("trained", x_TSH), ("live", y_TSH)):
            path = folder / side / f"hs_{number}.safetensors"
            save_file({"hidden_states": z_TSH.bfloat16(), "token_ids": token_ids}, path)


def _dumps(folder: Path, count: int) -> None:
    """The same numbers as files of SGLang's dumper; ``pairs-N`` lies beside and is at least as large."""
    import torch
    from safetensors.torch import load_file

    source = min(
        (p for p in folder.parent.glob("pairs-*") if p.name[6:].isdecimal() and int(p.name[6:]) >= count),
        key=lambda path: int(path.name[6:]),
    )
    for side in ("trained", "live"):
        (folder / side).mkdir()
        for number in range(count):
            states = load_file(source / side / f"hs_{number}.safetensors")["hidden_states"].flatten(1)
            tags = {"step": 0, "rank": 0, "dump_index": number + 1, "name": f"hidden_states_{number}"}
            name = "___".join(f"{key}={value}" for key, value in tags.items())
            torch.save({"value": states, "meta": {**tags, "dims": "t h"}}, folder / side / f"{name}.pt")


def _small(folder: Path, count: int) -> None:
    """Files of a few kilobytes, in folders of ten thousand; every one has token ids of its own."""
    import torch
    from safetensors.torch import save

    generator = torch.Generator().manual_seed(0)
    pool_NSH = torch.randn(4096 + SMALL_TOKENS, STATES, SMALL_WIDTH, generator=generator)
    noisy_NSH = (pool_NSH * (1 + NOISE * torch.randn(pool_NSH.shape, generator=generator))).bfloat16()
    pool_NSH = pool_NSH.bfloat16()
    for number in range(count):
        token_ids = torch.randint(VOCABULARY, (SMALL_TOKENS,), generator=generator)
        token_ids[:2] = torch.tensor(divmod(number, VOCABULARY))
        low = 61 * number % 4096
        for side, source_NSH in (("trained", pool_NSH), ("live", noisy_NSH)):
            path = folder / side / f"{number // 10_000:03}" / f"hs_{number}.safetensors"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(save({"hidden_states": source_NSH[low : low + SMALL_TOKENS], "token_ids": token_ids}))


def _reference(folder: Path, _count: int) -> None:
    """Captures: all boundaries, and the three of the wiring as trained and as live, with a little noise each."""
    from contextlib import ExitStack

    import torch

    from eagle_parity.capture.manifest import CapturedTarget, Producer
    from eagle_parity.capture.writer import CaptureWriter

    target = CapturedTarget(
        name="target", architectures=[], num_layers=REFERENCE_BOUNDARIES - 1, hidden_size=REFERENCE_HIDDEN
    )
    producer = Producer(engine="generated", dtype="bfloat16")
    generator = torch.Generator().manual_seed(0)
    rows = REFERENCE_TOKENS // REFERENCE_SEQUENCES
    update_TH = torch.randn(rows, REFERENCE_HIDDEN, generator=generator)
    with ExitStack() as stack:

        def writer(name: str, slots: tuple[int, ...]) -> CaptureWriter:
            return stack.enter_context(
                CaptureWriter(
                    folder / name, producer=producer, target=target, slots=slots, last_state=None, dtype="bfloat16"
                )
            )

        reference = writer("reference", tuple(range(REFERENCE_BOUNDARIES)))
        sides = [writer(name, WIRING) for name in ("trained", "live")]
        for number in range(REFERENCE_SEQUENCES):
            x_TH = torch.randn(rows, REFERENCE_HIDDEN, generator=generator)
            token_ids = torch.randint(VOCABULARY, (rows,), generator=generator)
            boundaries = []
            for boundary in range(REFERENCE_BOUNDARIES):
                if boundary:
                    x_TH += UPDATE * x_TH.std() * update_TH.roll((31 * boundary + number, 97 * boundary), dims=(0, 1))
                boundaries.append(x_TH.bfloat16())
            reference.write(f"text {number}", token_ids, boundaries)
            for side, capture in enumerate(sides):
                slots = [_noisy(boundaries[boundary], update_TH.roll(7 + side, dims=0)) for boundary in WIRING]
                capture.write(f"text {number}", token_ids, slots)


def _noisy(x_TH: torch.Tensor, noise_TH: torch.Tensor) -> torch.Tensor:
    return (x_TH * (1 + NOISE * noise_TH)).bfloat16()


@contextmanager
def _at_rest(folder: Path) -> Iterator[None]:
    """Files that are made inside look as if they had been written an hour ago."""
    yield
    then = time.time() - AT_REST
    for path in folder.rglob("*"):
        os.utime(path, (then, then))


_KINDS = {"pairs": _pairs, "dumps": _dumps, "small": _small, "reference": _reference}


def main() -> None:
    """Makes the data of one kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=sorted(_KINDS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("count", type=int)
    arguments = parser.parse_args()
    with _at_rest(arguments.folder):
        _KINDS[arguments.kind](arguments.folder, arguments.count)


if __name__ == "__main__":
    main()
