"""SGLang's comparator, from its wheel without the engine: whatever of the engine it imports is a module of nothing."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import sys
import time
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

REAL = "sglang.srt.debug_utils"


class Nothing(ModuleType):
    """A module with every name in it, each of them None."""

    def __getattr__(self, name: str) -> None:
        """None, but for what the import system asks of a module."""
        if name.startswith("__"):
            raise AttributeError(name)


class EngineIsAbsent(MetaPathFinder, Loader):
    """Finds the packages above the comparator empty, and the engine's other modules as ``Nothing``."""

    def __init__(self) -> None:
        found = importlib.util.find_spec("sglang")
        if found is None or not found.submodule_search_locations:
            raise ModuleNotFoundError("sglang")
        self._root = Path(found.submodule_search_locations[0])

    def find_spec(self, fullname: str, _path: object, _target: ModuleType | None = None) -> ModuleSpec | None:
        """None for what isn't the engine's."""
        if fullname.partition(".")[0] != "sglang" or f"{fullname}.".startswith(f"{REAL}."):
            return None
        spec = ModuleSpec(fullname, self, is_package=True)
        if f"{REAL}.".startswith(f"{fullname}."):
            spec.submodule_search_locations = [str(self._root.joinpath(*fullname.split(".")[1:]))]
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty one."""
        return Nothing(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing in it to run."""


sys.meta_path.insert(0, EngineIsAbsent())
if importlib.util.find_spec("zmq") is None:
    sys.modules["zmq"] = Nothing("zmq")  # the dumper's way to other processes

from sglang.srt.debug_utils.comparator.entrypoint import parse_args, run  # noqa: E402  after what it needs

start = time.process_time()
# The folders hold as many files as are asked for.
options = ["--baseline-path", sys.argv[1], "--target-path", sys.argv[2], "--verbosity", "minimal", "--report-path", ""]
with contextlib.redirect_stdout(io.StringIO()) as written:
    status = run(parse_args(options))
passed = re.findall(r"\d+ passed", written.getvalue())
print(json.dumps({"start": start, "said": f"status {status}, {passed[-1] if passed else 'nothing compared'}"}))
