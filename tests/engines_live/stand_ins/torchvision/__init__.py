"""In torchvision's place: SGLang imports it for images, and its wheel wants another torch than the CPU build.

Any submodule can be imported and any name taken from it; nothing in it does anything.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__version__ = "0.28.0"


class _Named(type):
    """A class on which every public attribute is its own name, as an enumeration's member might be."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return name


class _Hollow(ModuleType):
    """A module in which every public name is a class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = _Named(name, (), {})
        setattr(self, name, found)
        return found


class _Submodules(MetaPathFinder, Loader):
    """Finds every submodule of this package."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002  the finder's form
        return ModuleSpec(fullname, self, is_package=True) if fullname.startswith(f"{__name__}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Hollow(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


sys.meta_path.append(_Submodules())
