"""The work on a Ray cluster: the same parts and the same states, mapped by Ray's own scheduler."""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Any

from eagle_parity.errors import InputError, MissingExtraError
from eagle_parity.scan.executors import AHEAD, ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eagle_parity.scan.parts import Part, PartWork
    from eagle_parity.scan.set_state import SetState

ADDRESS_ENV = "RAY_ADDRESS"


class RayCluster:
    """A cluster that is named by ``RAY_ADDRESS``, or one of this machine's processors. A task is one part on one core.

    A worker that dies, or its node, loses nothing: Ray runs the part again on another one.

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
        """
        ray = _import_ray()
        mine = not ray.is_initialized()
        if mine:
            _begin(ray, self._workers)
        look = ray.remote(num_cpus=1, max_retries=ATTEMPTS)(_look)
        held = ray.put(work)
        begun: deque[tuple[Part, Any]] = deque()
        waiting = iter(parts)
        try:
            ahead = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
            while True:
                while len(begun) < ahead and (part := next(waiting, None)) is not None:
                    begun.append((part, look.remote(held, part)))
                if not begun:
                    return
                part, reference = begun.popleft()
                try:
                    state = ray.get(reference)
                except ray.exceptions.RayError as error:
                    reason = " ".join(str(error).split())[:300]
                    raise InputError(part.names[0], f"its part can't be done on the cluster ({reason})") from error
                yield part, state
        finally:
            if mine:
                ray.shutdown()


def _look(work: PartWork, part: Part) -> SetState:
    import torch

    torch.set_num_threads(1)
    return work(part)


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("--executor ray", "ray", "ray") from error
    return ray


def _begin(ray: Any, workers: int | None) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "include_dashboard": False, "logging_level": "ERROR"}
    if not os.environ.get(ADDRESS_ENV):
        options["num_cpus"] = workers
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(os.environ.get(ADDRESS_ENV, "ray"), f"no Ray cluster ({reason})") from error
