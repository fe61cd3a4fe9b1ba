"""SGLang 0.5.12 imports names from it at start; as in the package, each fails when called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgl_kernel import _absent

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn


def __getattr__(name: str) -> Callable[..., NoReturn]:
    return _absent(name)
