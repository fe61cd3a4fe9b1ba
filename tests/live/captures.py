"""What the scenarios look at in a capture of a server, and traffic beside it."""

from __future__ import annotations

import json
import random
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx

from live.tiny_models import BOS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import torch

_SENDERS = 2
"""Threads of traffic: enough to share every batch with it."""


def manifest(capture: Path) -> dict[str, Any]:
    """The capture's manifest."""
    content: dict[str, Any] = json.loads((capture / "manifest.json").read_text("utf-8"))
    return content


def tensors(path: Path) -> dict[str, torch.Tensor]:
    """Of one file."""
    from safetensors.torch import load_file

    return load_file(path)


def unequal_ranks(capture: Path) -> list[str]:
    """Files of other ranks that differ from the first one's in a bit."""
    import torch

    found = []
    for path in sorted(capture.glob("ranks/*/sequence_*.safetensors")):
        own = tensors(path)
        first = tensors(capture / path.name)
        if any(not torch.equal(tensor, first[name]) for name, tensor in own.items()):
            found.append(str(path.relative_to(capture)))
    return found


def rank_distance(capture: Path) -> float:
    """How far any row of any rank is from the first rank's, relative to that one's norm; ids are equal."""
    import torch

    largest = 0.0
    for path in sorted(capture.glob("ranks/*/sequence_*.safetensors")):
        first = tensors(capture / path.name)
        for name, tensor in tensors(path).items():
            if tensor.is_floating_point():
                difference = (tensor.double() - first[name].double()).norm(dim=-1)
                largest = max(largest, float((difference / first[name].double().norm(dim=-1)).max()))
            else:
                assert torch.equal(tensor, first[name]), f"{path.name}: {name}"
    return largest


def draft_inputs(capture: Path) -> set[str]:
    """What the manifest says of the sequences' draft inputs."""
    return {sequence["draft_input"] for sequence in manifest(capture)["sequences"]}


@contextmanager
def traffic(send: Callable[[list[int]], None]) -> Iterator[list[int]]:
    """Other people's requests, for as long as the block lasts; gives the count, in a list of one number.

    Args:
        send: one request of token ids, answered when it returns. Half of them begin alike, so that a prefix cache has
            something to find.
    """
    stop, lock, sent = threading.Event(), threading.Lock(), [0]

    def run(seed: int) -> None:
        generator = random.Random(seed)  # noqa: S311  prompts are no secrets
        shared = [BOS, *range(3, 43)]
        while not stop.is_set():
            own = [generator.randrange(256) for _ in range(generator.randrange(5, 90))]
            try:
                send([*shared, *own] if generator.random() < 0.5 else [BOS, *own])
            except httpx.HTTPError:
                return  # the server was ended on purpose
            with lock:
                sent[0] += 1

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(_SENDERS)]
    for thread in threads:
        thread.start()
    try:
        yield sent
    finally:
        stop.set()
        for thread in threads:
            thread.join()
