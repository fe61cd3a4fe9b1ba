"""What the capture hook costs a running server, as ratios: ``make bench-live``.

Two servers of one engine with the same tiny target and draft, TP=2 on CPU, one bare and one with the hook, up side by
side but never busy at once. Each round sends the same prompts to the bare server, to the other one as a stranger (the
hook is there and off), and to it as the capture does (it records), in an order that changes. Printed are the medians of
the ratios of wall times with their quartiles, and the hook's own clock as a share of the time while recording.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from eagle_parity.capture.servers.sglang import SglangServer
from eagle_parity.capture.servers.vllm import VllmServer
from eagle_parity.capture.spool.request_ids import new_session, request_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

ROUNDS = 12
PROMPT_TOKENS = 96
PROMPTS = 4
NEW_TOKENS = 24
"""Mostly decoding, as a server's time is: the hook records prompts."""
TOKEN_IDS = range(3, 250)
"""Of the tiny target's vocabulary, above its special ones."""
IDS, WIRING = [2, 5, 6], [3, 6, 7]


@dataclass(frozen=True)
class Driven:
    """One server as a round needs it.

    Attributes:
        engine: ``sglang`` or ``vllm``.
        url: its address.
        token: of its spool; empty where it has no hook.
        recording: switches its hook on.
    """

    engine: str
    url: str
    token: str = ""
    recording: Callable[[], AbstractContextManager[None]] = nullcontext

    def generate(self, prompt: Sequence[int], name: str) -> None:
        """One request; its salt keeps it out of every prefix cache."""
        salt = f"{name}.{time.monotonic_ns()}"
        if self.engine == "sglang":
            sampling = {"max_new_tokens": NEW_TOKENS, "temperature": 0, "ignore_eos": True}
            body = {"input_ids": list(prompt), "rid": f"{name}.{time.monotonic_ns()}", "extra_key": salt}
            path, content = "/generate", {**body, "sampling_params": sampling}
        else:
            sampling = {"max_tokens": NEW_TOKENS, "temperature": 0, "ignore_eos": True}
            path, content = (
                "/v1/completions",
                {"prompt": list(prompt), "request_id": name, "cache_salt": salt, **sampling},
            )
        httpx.post(f"{self.url}{path}", json=content, timeout=600, trust_env=False).raise_for_status()


def one_round(server: Driven, prompts: Sequence[Sequence[int]], name: Callable[[int], str]) -> float:
    """Seconds that a server takes for the prompts, one after the other."""
    started = time.perf_counter()
    for number, prompt in enumerate(prompts):
        server.generate(prompt, name(number))
    return time.perf_counter() - started


def hook_seconds(spool: Path, session: str) -> dict[str, float]:
    """What each rank's hook counted of its own time."""
    records = sorted((spool / session).glob("*.json"))
    return {path.stem: float(json.loads(path.read_text("utf-8"))["seconds"]) for path in records}


def spread(ratios: Sequence[float]) -> str:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.3f} (quartiles {low:.3f} to {high:.3f})"


def measure(bare: Driven, hooked: Driven, spool: Path, rounds: int) -> None:
    """Sends the rounds and prints what they say; the first one only warms up."""
    draw = random.Random(0)  # noqa: S311  prompts, not secrets
    times: dict[str, list[float]] = {"bare": [], "off": [], "recording": []}
    shares: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        prompts = [draw.choices(TOKEN_IDS, k=PROMPT_TOKENS) for _ in range(PROMPTS)]
        session = new_session()
        taken: dict[str, float] = {}
        for kind in draw.sample(sorted(times), k=len(times)):
            if kind == "recording":
                names = [request_id(hooked.token, session, index) for index in range(PROMPTS)]
                with hooked.recording():
                    taken[kind] = one_round(hooked, prompts, names.__getitem__)
            else:
                taken[kind] = one_round(bare if kind == "bare" else hooked, prompts, f"bench-{number}-{{}}".format)
        if number:
            for kind, seconds in taken.items():
                times[kind].append(seconds)
            for rank, seconds in hook_seconds(spool, session).items():
                shares.setdefault(rank, []).append(seconds / taken["recording"])
    print(f"{bare.engine}: {rounds} rounds of {PROMPTS} prompts of {PROMPT_TOKENS} tokens, {NEW_TOKENS} generated")
    for kind, base in (("off", "bare"), ("recording", "bare"), ("recording", "off")):
        print(f"  {kind} to {base}: {spread([a / b for a, b in zip(times[kind], times[base], strict=True)])}")
    for rank, share in sorted(shares.items()):
        print(f"  the hook's own clock on {rank}: {statistics.median(share):.2%} of the time while recording")


def run(engine: str, folder: Path, rounds: int) -> None:
    """Starts the two servers of an engine, and measures."""
    from engine_environments import make_environment
    from live.conftest import SGLANG, VLLM, install
    from live.servers import sglang_hook, sglang_server, vllm_hook, vllm_server
    from live.workshop import Workshop

    workshop, spool = Workshop(folder), folder / "spool"
    version = SGLANG if engine == "sglang" else VLLM
    python = make_environment(engine, version)
    install(python)
    target = workshop.target("llama", "float32")
    for name in ("bare", "hooked"):
        (folder / name).mkdir()
    with ExitStack() as stack:
        if engine == "sglang":
            draft = workshop.draft(
                "bench", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": IDS}}, dtype="float32"
            )
            start = [
                sglang_server(python, target, draft, folder / name, hook=hook, dtype="float32")
                for name, hook in (("bare", []), ("hooked", sglang_hook(version, spool)))
            ]
            bare, hooked = (stack.enter_context(server) for server in start)
            driven = SglangServer(hooked.url)
            pair = Driven(engine, bare.url), Driven(engine, hooked.url, driven.token, driven.recording)
        else:
            draft = workshop.draft("bench", {"eagle_aux_hidden_state_layer_ids": WIRING}, dtype="float32")
            bare = stack.enter_context(vllm_server(python, target, draft, folder / "bare", hook={}))
            hooked = stack.enter_context(
                vllm_server(python, target, draft, folder / "hooked", hook=vllm_hook(version, spool))
            )
            plugin = VllmServer(hooked.url, spool=str(spool))
            pair = Driven(engine, bare.url), Driven(engine, hooked.url, plugin.token, plugin.recording)
        measure(*pair, spool, rounds)


def main() -> int:
    """Both engines, or the ones that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("sglang", "vllm"), action="append")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    for engine in arguments.engine or ("sglang", "vllm"):
        with tempfile.TemporaryDirectory() as folder:
            run(engine, Path(folder), arguments.rounds)
    return 0


if __name__ == "__main__":
    # The servers are those of the live tests.
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    sys.exit(main())
