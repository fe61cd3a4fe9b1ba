"""A real server of an engine, in a process group of its own: started, waited for, gone at the end whatever happens."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import httpx

from live.tool import run_tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

HERE = Path(__file__).resolve().parent
STAND_INS = (HERE / "stand_ins", HERE.parent / "engines_live" / "stand_ins")
"""This folder's sgl_kernel comes before the other's, in which nothing works; torchvision is there alone."""
WORKER_PATCHES = HERE / "worker_patches"

FIRST_PORT = 32_100
LAST_PORT = 32_900
_PORTS_OF_A_SERVER = 25
"""SGLang takes some ports behind its own."""
SGLANG_ON_CPU = (
    # EAGLE refuses torch_native, and intel_amx alone becomes torch_native on a machine without the extension; named for
    # prefill and decode apart it stays (SGLang 0.5.23, arg_groups/overrides.py).
    *("--device", "cpu", "--attention-backend", "torch_native"),
    *("--prefill-attention-backend", "intel_amx", "--decode-attention-backend", "intel_amx"),
    *("--mem-fraction-static", "0.3", "--max-total-tokens", "4096", "--cuda-graph-backend-decode", "disabled"),
)
VLLM_ON_CPU = (
    # With EAGLE the last block that a cache holds of a prefix is computed again, and a block has 128 tokens by default.
    *("--block-size", "32", "--num-gpu-blocks-override", "128", "--max-model-len", "512", "--max-num-seqs", "8"),
)
START_SECONDS = 900.0
"""A start takes one to two minutes on two idle cores, and these may be busy."""
STOP_SECONDS = 15.0
_POLL_SECONDS = 0.5
_TAIL = 40
"""Lines of a server's log that a failure shows."""
_WIDTH = 300
"""Of such a line: SGLang prints all of its options in one."""


class ServerFailedError(RuntimeError):
    """It ended, or didn't answer in time; the message has the end of its log."""


class Server:
    """One server.

    Args:
        name: of its log.
        command: without the port.
        environment: all of it.
        folder: where it runs, and its log lies.

    Attributes:
        seconds: from the start to the first healthy answer.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self.port, self._lock = take_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.command = [*command, "--host", "127.0.0.1", "--port", str(self.port)]
        self.environment = dict(environment)
        self.folder = folder
        self.log = folder / f"{name}.log"
        self.seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        started = time.monotonic()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self.command,
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_healthy(started + START_SECONDS)
        except BaseException:
            self.kill()
            raise
        self.seconds = time.monotonic() - started
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_SECONDS
            while _members(self._process.pid) and time.monotonic() < deadline:
                self._process.poll()
                time.sleep(_POLL_SECONDS)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to all of its processes; returns when none is left."""
        self._lock.close()
        if self._process is None:
            return
        while _members(self._process.pid):
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                break
            self._process.poll()
            time.sleep(_POLL_SECONDS)
        self._process.wait()

    def healthy(self) -> bool:
        """Whether it answers."""
        try:
            return httpx.get(f"{self.url}/health", timeout=20, trust_env=False).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON of a good answer."""
        answer = httpx.post(f"{self.url}{path}", json=dict(body), timeout=600, trust_env=False)
        answer.raise_for_status()
        return answer.json()

    def tail(self) -> str:
        """The end of its log."""
        lines = self.log.read_text("utf-8", errors="replace").splitlines()[-_TAIL:]
        return "\n".join(line[:_WIDTH] for line in lines)

    def _wait_until_healthy(self, deadline: float) -> None:
        assert self._process is not None
        while self._process.poll() is not None or not self.healthy():
            if self._process.poll() is not None:
                raise ServerFailedError(f"{self.log.name}: ended with {self._process.returncode}\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ServerFailedError(f"{self.log.name}: no healthy answer in {START_SECONDS:.0f} s\n{self.tail()}")
            time.sleep(_POLL_SECONDS)


def sglang_server(
    python: Path,
    target: Path,
    draft: Path | None,
    folder: Path,
    *,
    hook: Sequence[str],
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    ranks: int = 2,
    dtype: str = "auto",
) -> Server:
    """SGLang on CPU with EAGLE-3 speculation.

    Args:
        python: of its environment.
        target: its folder.
        draft: likewise; None for a server without one, whose options say what it captures.
        folder: for the log.
        hook: what ``capture sglang --launch-flags`` printed, or the part of it that is wanted.
        options: of the launch, beside.
        environment: likewise.
        ranks: tensor-parallel.
        dtype: of the computation.
    """
    command = [str(python), "-m", "sglang.launch_server", "--model-path", str(target), "--dtype", dtype]
    if draft is not None:
        command += ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(draft)]
        command += ["--speculative-num-steps", "3", "--speculative-eagle-topk", "1"]
        command += ["--speculative-num-draft-tokens", "4"]
    command += ["--tp", str(ranks), *SGLANG_ON_CPU, *hook, *options]
    return Server("server", command, {**sglang_surroundings(python, ranks), **(environment or {})}, folder)


def vllm_server(
    python: Path,
    target: Path,
    draft: Path | None,
    folder: Path,
    *,
    hook: Mapping[str, str],
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    ranks: int = 2,
    dtype: str = "float32",
) -> Server:
    """vLLM on CPU with EAGLE-3 speculation; the arguments are as for SGLang, ``hook`` is the environment."""
    # The script `vllm` asks for a distribution of that name, which the CPU build isn't.
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(target)]
    command += ["--served-model-name", "target", "--tensor-parallel-size", str(ranks), "--dtype", dtype]
    command += VLLM_ON_CPU
    if draft is not None:
        speculative = {"method": "eagle3", "model": str(draft), "num_speculative_tokens": 3}
        command += ["--speculative-config", json.dumps(speculative)]
    command += options
    return Server("server", command, {**vllm_surroundings(python, ranks), **hook, **(environment or {})}, folder)


def sglang_surroundings(python: Path, ranks: int = 2) -> dict[str, str]:
    """What SGLang's processes find on this machine."""
    return {
        **_surroundings(python, STAND_INS),
        "SGLANG_USE_CPU_ENGINE": "1",
        # Two ranks on one NUMA node want their cores named.
        "SGLANG_CPU_OMP_THREADS_BIND": _cores(ranks),
    }


def vllm_surroundings(python: Path, ranks: int = 2) -> dict[str, str]:
    """What vLLM's processes find on this machine."""
    return {
        **_surroundings(python),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": _cores(ranks),
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }


def sglang_hook(version: str, spool: Path, *, exported_to: Path | None = None) -> list[str]:
    """The launch flags, as the tool prints them; ``exported_to`` writes the hook as one file there."""
    options = ["--export-hook", str(exported_to)] if exported_to else ["--launch-flags"]
    printed = run_tool("capture", "sglang", *options, "--engine", f"sglang@{version}", "--spool", str(spool)).stdout
    return shlex.split(printed, comments=True)


def vllm_hook(version: str, spool: Path) -> dict[str, str]:
    """The environment, as the tool prints it."""
    printed = run_tool("capture", "vllm", "--launch-flags", "--engine", f"vllm@{version}", "--spool", str(spool)).stdout
    return dict(word.split("=", 1) for word in shlex.split(printed))


def _surroundings(python: Path, path: Sequence[Path] = ()) -> dict[str, str]:
    """This process's environment without its own Python, with the server's, and small threads."""
    dropped = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "EAGLE_PARITY_SPOOL", "VLLM_PLUGINS", "SGLANG_PLUGINS"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {
        **kept,
        "PATH": f"{python.parent}{os.pathsep}{kept.get('PATH', os.defpath)}",
        "PYTHONPATH": os.pathsep.join(str(folder) for folder in (*path, WORKER_PATCHES)),
        "PYTHONNOUSERSITE": "1",
        "HF_HUB_OFFLINE": "1",
        # Matrices this small gain nothing from a second thread, and each rank has a core.
        "OMP_NUM_THREADS": "1",
    }


def _cores(ranks: int) -> str:
    cores = sorted(os.sched_getaffinity(0))
    return "|".join(str(cores[rank % len(cores)]) for rank in range(ranks))


def take_port() -> tuple[int, IO[str]]:
    """A port that nothing listens on, and the lock that keeps it from other runs until the server listens."""
    for port in range(FIRST_PORT, LAST_PORT, _PORTS_OF_A_SERVER):
        lock = (Path(tempfile.gettempdir()) / f"eagle-parity-live-{os.getuid()}-{port}.lock").open(
            "w", encoding="utf-8"
        )
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                probe.bind(("127.0.0.1", port))
            except OSError:
                lock.close()
                continue
            return port, lock
    raise ServerFailedError(f"no free port from {FIRST_PORT} to {LAST_PORT}")


def _members(group: int) -> list[int]:
    """Processes of a group that are no zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text("utf-8", errors="replace").rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            state, process_group = fields[0], int(fields[2])
            if process_group == group and state != "Z":
                found.append(int(entry.name))
    return found
