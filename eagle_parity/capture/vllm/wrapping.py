"""Wrappers around methods of live objects, put on and taken off while the server runs."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eagle_parity.capture.vllm.releases import KNOWN_RELEASES, CaptureError, vllm_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_ABSENT = object()


class Wrappers:
    """The wrappers of one worker. Each calls what it wraps exactly once, whatever happens around it.

    Args:
        fail: is told what failed, and with which arguments; raises nothing.
        let_go: is called when a method that was wrapped first is through, in whatever way; raises nothing.
    """

    def __init__(self, fail: Callable[[Exception, Mapping[str, Any]], None], let_go: Callable[[], None]) -> None:
        self._fail = fail
        self._let_go = let_go
        self._wrapped: list[_Wrapper] = []

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

        is_outermost = not self._wrapped  # the runner's method, which calls the others
        put = _Wrapper(owner, name, owner.__dict__.get(name, _ABSENT))

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not put.is_on:  # somebody else's wrapper around this one keeps it where it is
                return original(*args, **kwargs)
            arguments: dict[str, Any] = {}
            try:
                arguments = signature.bind(*args, **kwargs).arguments
                around(arguments)
            except Exception as error:  # noqa: BLE001  nothing may reach the engine
                self._fail(error, arguments)
            finally:
                arguments = {}
            try:
                return original(*args, **kwargs)
            finally:
                if is_outermost:
                    self._let_go()

        # An attribute of the instance hides the class's method, and deleting it brings that back.
        put.wrapper = owner.__dict__[name] = wrapper
        self._wrapped.append(put)

    def remove(self) -> None:
        """Brings back what was there, unless somebody else has wrapped it since: then the wrapper does nothing."""
        while self._wrapped:
            put = self._wrapped.pop()
            put.is_on = False
            if put.owner.__dict__.get(put.name) is not put.wrapper:
                continue
            if put.former is _ABSENT:
                del put.owner.__dict__[put.name]
            else:
                put.owner.__dict__[put.name] = put.former


@dataclass
class _Wrapper:
    """A wrapper where it was put."""

    owner: Any
    name: str
    former: object
    wrapper: object = None
    is_on: bool = True
