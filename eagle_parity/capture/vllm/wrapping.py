"""Wrappers around methods of live objects, put on and taken off while the server runs."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.vllm.releases import KNOWN_RELEASES, CaptureError, vllm_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_ABSENT = object()


class Wrappers:
    """The wrappers of one worker. Each calls what it wraps exactly once, whatever happens around it.

    Args:
        fail: is told what failed, and with which arguments.
    """

    def __init__(self, fail: Callable[[Exception, Mapping[str, Any]], None]) -> None:
        self._fail = fail
        self._wrapped: list[tuple[Any, str, object]] = []

    def __bool__(self) -> bool:
        return bool(self._wrapped)

    def wrap(self, owner: Any, name: str, around: Callable[[dict[str, Any]], None], reads: Sequence[str]) -> None:
        """Has ``around`` called with the arguments by name, before the method itself.

        Args:
            owner: a live object.
            name: of its method.
            around: what is called.
            reads: the arguments that it reads.

        Raises:
            CaptureError: the method has no such argument: another release.
        """
        original = getattr(owner, name)
        signature = inspect.signature(original)
        unknown = [wanted for wanted in reads if wanted not in signature.parameters]
        if unknown:
            raise CaptureError(
                f"{type(owner).__name__}.{name} of vLLM {vllm_version()} has no {unknown[0]}; the hook knows"
                f" {KNOWN_RELEASES}"
            )

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            arguments: dict[str, Any] = {}
            try:
                arguments = signature.bind(*args, **kwargs).arguments
                around(arguments)
            except Exception as error:  # noqa: BLE001  nothing may reach the engine
                self._fail(error, arguments)
            return original(*args, **kwargs)

        # An attribute of the instance hides the class's method, and deleting it brings that back.
        self._wrapped.append((owner, name, owner.__dict__.get(name, _ABSENT)))
        owner.__dict__[name] = wrapper

    def remove(self) -> None:
        """Brings back what was there."""
        while self._wrapped:
            owner, name, former = self._wrapped.pop()
            if former is _ABSENT:
                owner.__dict__.pop(name, None)
            else:
                owner.__dict__[name] = former
