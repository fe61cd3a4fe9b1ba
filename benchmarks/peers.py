"""CPU time against what else compares tensors: a numpy script, torch, SGLang's comparator, Polygraphy.

Each runs in a process of its own on the same numbers. The slow ones get a share of the files, and what they take behind
their imports is multiplied; the table says so. The two that have to be installed are in an environment of their own,
made on demand below the cache. Where that fails the table says so.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import data
from benchmarks.comparing import compare, diff_command
from benchmarks.figures import Topic, ratios
from benchmarks.machine import GB, MB, read_seconds, size_of
from benchmarks.pairs import compare_inside
from benchmarks.process import IMPORT_TORCH, ROOT, CommandFailedError, Ran, run

if TYPE_CHECKING:
    from benchmarks.settings import Settings

SCRIPTS = Path(__file__).resolve().parent / "peer_scripts"
ENVIRONMENT = "peers-venv"
INSTALLED = (
    ("torch", "numpy", "safetensors", "polars", "pydantic", "rich", "matplotlib", "einops", "pyyaml"),
    ("--no-deps", "sglang==0.5.23"),
    ("--no-deps", "polygraphy==0.53.6"),
)
"""What pip is called with, one call each. SGLang's own dependencies would bring the engine's."""


@dataclass(frozen=True)
class Peer:
    """One of them.

    Attributes:
        name: as the table has it.
        script: that drives it.
        share: files that it gets of ``SHARDS_A_GIB``, and with ``FULL``.
        installed: whether it needs the environment.
        asked: how many times more CPU time than the tool's it should take at least; 0 where nothing was asked.
    """

    name: str
    script: str
    share: tuple[int, int]
    installed: bool = False
    asked: int = 0


ALL = 10**9
PEERS = (
    Peer("numpy script", "numpy_script", (ALL, ALL), asked=8),
    Peer("torch.testing.assert_close", "assert_close", (ALL, ALL)),
    Peer("SGLang 0.5.23's comparator", "sglang_comparator", (11, ALL), installed=True, asked=30),
    Peer("Polygraphy 0.53.6, float32", "polygraphy_compare", (2, 8), installed=True),
)


def measure(settings: Settings) -> Topic:
    """Rounds of: the tool, and each peer once."""
    count = settings.shards
    folder = data.prepare(settings.cache, "pairs", count)
    files = data.shards(folder)
    command, tokens = diff_command(folder), count * data.TOKENS
    topic = Topic("peers", f"CPU seconds for {size_of(files) / GB:.2f} GB of bfloat16, both sides together")
    python, why = _environment(settings.cache)
    peers = [peer for peer in PEERS if python is not None or not peer.installed]
    commands = {}
    for peer in list(peers):
        files_of = min(peer.share[settings.full], count)
        try:
            commands[peer] = _command(peer, python, settings.cache, folder, files_of), files_of
        except CommandFailedError as error:
            peers.remove(peer)
            topic.absent(peer.name, str(error))
    tool: list[Ran] = []
    bare: list[Ran] = []
    inside: list[float] = []
    of_peer: dict[Peer, list[tuple[float, float, Ran, str]]] = {peer: [] for peer in peers}
    broken: dict[Peer, str] = {}
    compare(command, tokens)  # compiles what isn't compiled yet
    for _ in range(settings.rounds if settings.full else 1):
        read_seconds(files, 2)  # uncounted: brings into the page cache what has left it
        tool.append(compare(command, tokens))
        inside.append(compare_inside(folder)[0][1])
        bare.append(run(IMPORT_TORCH))
        for peer in [peer for peer in peers if peer not in broken]:
            peer_command, files_of = commands[peer]
            try:
                of_peer[peer].append(_measured(peer_command, count / files_of))
            except CommandFailedError as error:
                broken[peer] = str(error)[-200:]
    own = [ran.cpu for ran in tool]
    topic.add("`import torch` alone", "CPU s", [ran.cpu for ran in bare], note="in each of the others")
    topic.add("eagle-parity diff-captures", "CPU s", own, note=f"peak {max(ran.peak for ran in tool) / MB:,.0f} MB")
    topic.add("the first comparison in its process, behind the imports", "CPU s", inside)
    for peer in PEERS:
        if peer in broken:
            topic.absent(peer.name, broken[peer])
        elif of_peer.get(peer):
            cpu = [whole for whole, _, _, _ in of_peer[peer]]
            _, _, ran, said = of_peer[peer][-1]
            files_of = commands[peer][1]
            share = "" if files_of == count else f"on {files_of} of {count} files, multiplied; "
            topic.add(peer.name, "CPU s", cpu, note=f"{share}peak {ran.peak / MB:,.0f} MB; {said}")
            asked = f"{peer.asked} at least" if peer.asked else ""
            topic.add(f"{peer.name}, to eagle-parity", "", ratios(cpu, own), asked=asked)
            behind = [work for _, work, _, _ in of_peer[peer]]
            topic.add(f"{peer.name}, to eagle-parity, both behind their imports", "", ratios(behind, inside))
        elif peer.installed and python is None:
            topic.absent(peer.name, f"can't be installed: {why}")
    return topic


def _command(peer: Peer, python: Path | None, cache: Path, folder: Path, count: int) -> list[str]:
    """What runs a peer on so many files; what it reads is made first."""
    script = str(SCRIPTS / f"{peer.script}.py")
    interpreter = str(python) if peer.installed else sys.executable
    if peer.script == "sglang_comparator":
        folder = data.prepare(cache, "dumps", count)
    command = [interpreter, script, str(folder / "trained"), str(folder / "live"), str(count)]
    if peer.script != "polygraphy_compare":
        return command
    inputs = cache / f"polygraphy-{count}"
    if not (inputs / "live.json").exists():
        shutil.rmtree(inputs, ignore_errors=True)
        inputs.mkdir(parents=True)
        make = str(SCRIPTS / "polygraphy_inputs.py")
        run([interpreter, make, *command[2:], str(inputs)])
    return [*command, str(inputs)]


def _measured(command: list[str], factor: float) -> tuple[float, float, Ran, str]:
    """CPU seconds for all files with the imports and without, the process, and what the peer said.

    Raises:
        CommandFailedError: it didn't come to its end.
    """
    ran = run(command)
    try:
        told = json.loads(ran.stdout.splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise CommandFailedError(f"{command[1]}: {ran.stderr[-300:]}") from error
    work = (ran.cpu - told["start"]) * factor
    return told["start"] + work, work, ran, told["said"]


def _environment(cache: Path) -> tuple[Path | None, str]:
    """The peers' Python, made where it isn't there yet; or why it can't be made."""
    folder = (cache / ENVIRONMENT).absolute()
    python = folder / "bin" / "python"
    mark = folder / "installed.json"
    wanted = json.dumps(INSTALLED)
    if mark.exists() and mark.read_text() == wanted:
        return python, ""
    print(f"installing peers into {folder.name} ...", file=sys.stderr)
    pip = [str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    try:
        if not python.exists():
            run([sys.executable, "-m", "venv", str(folder)])
        for packages in INSTALLED:
            run([*pip, *packages])
    except (CommandFailedError, OSError, subprocess.SubprocessError) as error:
        return None, (str(error).strip().splitlines() or [""])[-1]
    mark.write_text(wanted)
    return python, ""
