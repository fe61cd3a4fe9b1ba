"""The compiled loops as machine code: numba compiles them once, and from then on llvmlite links what was kept.

numba keeps what it compiles as well, but fills its registries of all functions that it knows before it loads the first
one, in every process: that takes half as long as a gigabyte of states does. Linking takes a hundredth of a second.

What is kept is told apart by everything that it depends on: the source of the loops and of this module, the versions of
numba and llvmlite, numba's settings, the system and the processor.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import inspect
import json
import operator
import os
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from eagle_parity import numerics
from eagle_parity.numerics import kept_code, loops
from eagle_parity.numerics.loops.shapes import FIELDS
from eagle_parity.numerics.processor import LEAST_FLOATS, this_processor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

    import numpy.typing as npt

    from eagle_parity.numerics.processor import Processor

_OPTIMISATION = 3
_SETTINGS_FILE = Path(".numba_config.yaml")
"""numba's, in the working folder."""
_MOST_SETTINGS = 65536
"""Bytes of it that are looked at."""
_KEY_CHARACTERS = 24
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
"""numba's calling convention: a status, and where the result, an exception and the argument are. ctypes lets other
threads run meanwhile."""
_NEVER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
"""What would free an array of numba's own, of which the loops have none: it is named and not called."""


class Parameter(NamedTuple):
    """What a loop takes: an array's dtype and number of dimensions, or an int64, which has none."""

    name: str
    dtype: str
    dimensions: int


class Loop:
    """One compiled loop.

    Args:
        name: its own.
        parameters: what it takes, in its order.
        address: of its machine code.
    """

    def __init__(self, name: str, parameters: list[Parameter], address: int) -> None:
        self._name = name
        self._parameters = parameters
        self._call = _PROTOTYPE(address)

    def __call__(self, **arguments: npt.NDArray[np.generic] | int) -> int:
        """Runs it.

        Args:
            arguments: of the names, dtypes and dimensions that its source has, arrays in C's order.

        Returns:
            Its result.

        Raises:
            TypeError: other arguments. A loop takes addresses, and would read and write whatever is there.
        """
        told = np.zeros((len(self._parameters), FIELDS), np.int64)
        if arguments.keys() != {parameter.name for parameter in self._parameters}:
            raise TypeError(f"{self._name} takes {', '.join(each.name for each in self._parameters)}")
        for row, (name, dtype, dimensions) in zip(told, self._parameters, strict=True):
            argument = arguments[name]
            if not dimensions:
                row[0] = operator.index(argument)
                continue
            if (
                not isinstance(argument, np.ndarray)
                or argument.dtype != dtype
                or argument.ndim != dimensions
                or not argument.flags.c_contiguous
            ):
                raise TypeError(f"{name} of {self._name} has to be {dtype}, {dimensions} dimensions, without gaps")
            row[0] = argument.ctypes.data
            row[1 : 1 + dimensions] = argument.shape
        result, error = ctypes.c_int64(), ctypes.c_void_p()
        status = self._call(ctypes.addressof(result), ctypes.addressof(error), told.ctypes.data)
        if status:
            raise RuntimeError(f"{self._name} failed ({status})")
        return result.value


class Loops:
    """All of them.

    Args:
        code: as ``_compile`` gives it.

    Attributes:
        compare_block, row_distances, count_errors: see ``loops.entries``.
        floats: float32 numbers that they take at once.

    Raises:
        RuntimeError, ValueError, KeyError: it can't be linked here, or is something else.
    """

    def __init__(self, code: bytes) -> None:
        head, _, image = code.partition(b"\n")
        told = json.loads(head)
        self.floats = int(told["floats"])
        self._parameters: dict[str, list[list[str | int]]] = told["parameters"]
        builder = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
        builder.import_symbol("NRT_MemInfo_call_dtor", ctypes.cast(_NEVER, ctypes.c_void_p).value)
        for name in self._parameters:
            builder.export_symbol(name)
        self._linker = llvm.create_lljit_compiler(suppress_errors=True)
        # The code is there as long as both are.
        self._linked = builder.link(self._linker, "loops")
        self.compare_block = self._loop("compare_block")
        self.row_distances = self._loop("row_distances")
        self.count_errors = self._loop("count_errors")

    def _loop(self, name: str) -> Loop:
        parameters = [Parameter(str(told), str(dtype), int(rank)) for told, dtype, rank in self._parameters[name]]
        return Loop(name, parameters, self._linked[name])


@cache
def load() -> Loops:
    """The loops; where none are kept for this processor they are compiled, which takes thirty seconds, and kept."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name = f"loops-{_key()}.o"
    for folder in kept_code.folders():
        code = kept_code.read(folder / name)
        if code is not None:
            try:
                return Loops(code)
            except (RuntimeError, ValueError, KeyError):  # whole, and of no use
                continue
    code = _compile()
    found = Loops(code)
    # Where numba was used before in this process it may have made something slower, which isn't for the next ones.
    if found.floats == this_processor().floats:
        for folder in kept_code.folders():
            if kept_code.keep(folder / name, code):
                break
    return found


def _key() -> str:
    told = [(file.name, file.read_text(encoding="utf-8")) for file in _sources()]
    told += [
        ("numba", importlib.metadata.version("numba")),
        ("llvmlite", llvmlite.__version__),
        ("system", llvm.get_process_triple()),
        ("processor", json.dumps(this_processor())),
        *_settings(),
    ]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:_KEY_CHARACTERS]


def _settings() -> Iterator[tuple[str, str]]:
    """What numba is told by the environment or its file: to compile without optimisation, say, for a debugger."""
    for name, value in sorted(os.environ.items()):
        if name.startswith("NUMBA_") and name != kept_code.FOLDER_ENV:
            yield name, value
    with suppress(OSError), _SETTINGS_FILE.open("rb") as file:
        yield "file", file.read(_MOST_SETTINGS).hex()


def _sources() -> Iterator[Traversable]:
    """Files that what is compiled depends on."""
    for name in ("machine_code.py", "processor.py"):
        yield resources.files(numerics) / name
    for file in sorted(resources.files(loops).iterdir(), key=lambda each: each.name):
        if file.name.endswith(".py"):
            yield file


def _compile() -> bytes:
    """What the loops take, and how, as a line of JSON, and an object file of them."""
    from numba import types
    from numba.core.registry import cpu_target
    from numba.np.numpy_support import as_dtype

    processor = this_processor()
    _tell_numba(processor)
    from eagle_parity.numerics.loops.entries import ENTRIES

    module = llvm.parse_assembly("")
    parameters: dict[str, list[Parameter]] = {}
    for name, (entry, loop) in ENTRIES.items():
        entry.compile((types.uint64,))
        (signature,) = entry.signatures
        part = llvm.parse_assembly(entry.inspect_llvm(signature))
        part.get_function(entry.overloads[signature].fndesc.llvm_func_name).name = name
        module.link_in(part)
        (taken,) = loop.signatures
        parameters[name] = [
            Parameter(parameter, as_dtype(kind.dtype).name, kind.ndim)
            if isinstance(kind, types.Array)
            else Parameter(parameter, as_dtype(kind).name, 0)
            for parameter, kind in zip(inspect.signature(loop.py_func).parameters, taken, strict=True)
        ]
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=processor.name,
        features=processor.features,
        opt=_OPTIMISATION,
        reloc="default",
        codemodel="jitdefault",
        jit=True,
    )
    image: bytes = machine.emit_object(module)
    _triple, _name, features = cpu_target.target_context.codegen().magic_tuple()
    floats = processor.floats if features == processor.features else LEAST_FLOATS
    return json.dumps({"floats": floats, "parameters": parameters}).encode() + b"\n" + image


def _tell_numba(processor: Processor) -> None:
    """Has numba compile for the processor as it is used here.

    In a process where numba was used before it has made its choice, and keeps it.
    """
    from numba import config

    if processor.floats > LEAST_FLOATS:
        config.CPU_NAME, config.CPU_FEATURES = processor.name, processor.features
