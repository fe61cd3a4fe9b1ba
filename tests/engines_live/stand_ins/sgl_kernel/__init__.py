"""In sgl_kernel's place: there is no CPU build of it on the index, and SGLang imports names from it at start.

Every kernel is there by name and fails when called, so that nothing is ever computed by a stand-in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


def _absent(name: str) -> Callable[..., NoReturn]:
    if name.startswith("_"):
        raise AttributeError(name)

    def kernel(*_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} has no CPU build")

    return kernel


def __getattr__(name: str) -> Callable[..., NoReturn]:
    return _absent(name)


class _Operators:
    """``torch.ops.sgl_kernel``: only the CPU kernels, since SGLang asks by hasattr which of the others there are."""

    def __getattr__(self, name: str) -> Any:
        if not name.endswith("_cpu"):
            raise AttributeError(name)
        return _absent(name)


torch.ops.sgl_kernel = _Operators()
