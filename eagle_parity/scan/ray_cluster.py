"""The work on a Ray cluster: the same parts and the same states, mapped by Ray's own scheduler."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle_parity import __version__
from eagle_parity.errors import InputError, MissingExtraError, ParityError, UsageError
from eagle_parity.quoting import one_line
from eagle_parity.scan.executors import AHEAD, ATTEMPTS, file_by_file
from eagle_parity.scan.shards import LocalShards

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eagle_parity.scan.parts import Part, PartWork
    from eagle_parity.scan.set_state import SetState

ADDRESS_ENV = "RAY_ADDRESS"
_HERE = "local"
"""Ray's word for a cluster of one's own."""
_KNOCK_SECONDS = 10.0
_USAGE_ENV = "RAY_USAGE_STATS_ENABLED"


class NodeError(ParityError):
    """A node of the cluster on which the work can't be done: with what it would say of files nothing is said."""


class RayCluster:
    """A cluster that is named by ``RAY_ADDRESS``, or one of this machine's processors. A task is one part on one core.

    A worker that dies, or its node, loses nothing: its part is done again on another one. Not by Ray's own retries,
    of which those for want of memory have no end.

    Args:
        workers: of a cluster that is begun here; None for one a core.
    """

    def __init__(self, workers: int | None) -> None:
        self._workers = workers

    def run(self, work: PartWork, parts: Iterable[Part]) -> Iterator[tuple[Part, SetState]]:
        """See ``Executor``.

        Raises:
            InputError: the cluster can't be reached, or a part can't be done on it.
            MissingExtraError: Ray isn't installed.
            NodeError: a node doesn't have what the work takes.
            UsageError: a number of workers, and a cluster that has its own.
        """
        ray = _import_ray()
        if ray.is_initialized():
            yield from _run(ray, work, parts)
            return
        # Ray prints there that a worker died, and the result belongs there alone.
        with contextlib.redirect_stdout(sys.stderr):
            try:
                _begin(ray, self._workers)
                yield from _run(ray, work, parts)
            finally:
                ray.shutdown()


def _run(ray: Any, work: PartWork, parts: Iterable[Part]) -> Iterator[tuple[Part, SetState]]:
    # What has begun when this is left ends by itself, and nobody asks what it found: ``ray.cancel`` of a task that is
    # just being handed to a worker ends the whole driver (2.60.0: "Tried to complete task that was not pending"; the
    # race is described in Ray's pull request 54527).
    begun: deque[tuple[Part, Any]] = deque()
    tasks = _Tasks(ray, work)
    ahead = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting = iter(parts)
    while True:
        while len(begun) < ahead and (part := next(waiting, None)) is not None:
            begun.append((part, tasks.begin(part)))
        if not begun:
            return
        part, task = begun.popleft()
        state = tasks.found_by(part, task) or tasks.again(part)
        yield part, state or file_by_file(work, part, tasks.again)


class _Tasks:
    """The parts as tasks of a cluster."""

    def __init__(self, ray: Any, work: PartWork) -> None:
        self._ray = ray
        self._root = work.shards.root
        self._function = ray.remote(num_cpus=1, max_retries=0)(_look)
        self._work = ray.put(_everywhere(work))

    def begin(self, part: Part) -> Any:
        """Begins a part."""
        return self._function.remote(self._work, part, __version__)

    def again(self, part: Part) -> SetState | None:
        """Does a part whose worker may die, and waits for it; None where it died each time."""
        attempts = (self.found_by(part, self.begin(part)) for _ in range(ATTEMPTS))
        return next((state for state in attempts if state is not None), None)

    def found_by(self, part: Part, task: Any) -> SetState | None:
        """What a task found; None where its worker died.

        Raises:
            InputError: it failed otherwise.
            NodeError, StorageError: as the node says.
        """
        errors = self._ray.exceptions
        try:
            # A copy: arrays that come out of Ray's store can't be written to, and nothing could be added to them.
            state: SetState = pickle.loads(self._ray.get(task))  # noqa: S301  of our own function
        except (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError, errors.ObjectLostError):
            return None
        except errors.RayTaskError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, ParityError):
                raise cause from None
            remedy = "its nodes need what this machine has: eagle-parity, torch, the storage's client"
            raise InputError(
                self._root,
                f"{part.names[0]} and those behind it failed on the cluster ({_last_line(error)})",
                remedy=remedy if isinstance(cause, ImportError) or "ModuleNotFoundError" in str(error) else "",
            ) from error
        except errors.RayError as error:
            raise InputError(self._root, f"the cluster failed ({one_line(error)})") from error
        return state


def _look(work: PartWork, part: Part, version: str) -> bytes:
    """A part, on a node: the state as bytes."""
    import platform

    import torch

    node = platform.node()
    if version != __version__:
        raise NodeError(f"node {node} has eagle-parity {__version__}, this machine {version}: install the same on all")
    root = work.shards.root
    if isinstance(work.shards, LocalShards) and not Path(root).is_dir():
        raise NodeError(f"{root}: not on node {node}; a folder has to be on all nodes under one path, a URL needn't")
    torch.set_num_threads(1)
    return pickle.dumps(work(part), protocol=pickle.HIGHEST_PROTOCOL)


def _everywhere(work: PartWork) -> PartWork:
    """The same with an absolute path: workers of a cluster have a working directory of their own."""
    if not isinstance(work.shards, LocalShards):
        return work
    return replace(work, shards=replace(work.shards, root=str(Path(work.shards.root).absolute())))


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("--executor ray", "ray", "ray") from error
    return ray


def _begin(ray: Any, workers: int | None) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    address = os.environ.get(ADDRESS_ENV) or _HERE
    if address == _HERE:
        os.environ.setdefault(_USAGE_ENV, "0")  # whoever asks for a scan has not asked for a report to Ray's makers
        # Said in so many words: else Ray looks for another one's on this machine.
        options |= {"address": _HERE, "num_cpus": workers, "include_dashboard": False}
    elif workers is not None:
        raise UsageError(f"--workers and {ADDRESS_ENV}: the cluster has its own")
    else:
        _knock(address)
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise InputError(address, f"no Ray cluster ({one_line(error)})") from error


def _knock(address: str) -> None:
    """Whether somebody is there: Ray itself waits for minutes where nobody is.

    Raises:
        InputError: nobody is.
    """
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        return  # "auto", or ray://: Ray's own to find out
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(address, f"no Ray cluster ({one_line(error)})", remedy=f"see {ADDRESS_ENV}") from error


def _last_line(error: BaseException) -> str:
    """What the node's own error says: behind its traceback."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
