"""The compiled loops as machine code: numba compiles them once, and from then on llvmlite links what was kept.

numba keeps what it compiles as well, but fills its registries of all functions that it knows before it loads the first
one, in every process: that takes as long as a gigabyte of states does. Linking takes a hundredth of a second.

What is kept is told apart by the loops' own source, the versions of numba and llvmlite, and the processor.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import tempfile
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from eagle_parity.numerics import loops
from eagle_parity.numerics.loops.shapes import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

FOLDER_ENV = "NUMBA_CACHE_DIR"
NAMES = ("compare_block", "row_distances", "count_errors")
"""Of the loops, in ``loops.entries``."""

_MAGIC = b"eagle-parity loops 1\n"
_DIGEST_BYTES = hashlib.sha256().digest_size
_MOST_BYTES = 64 * 1024 * 1024
_OPTIMISATION = 3
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
"""numba's calling convention: a status, and where the result, an exception and the argument are. ctypes lets other
threads run meanwhile."""
_NEVER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
"""What would free an array of numba's own, of which the loops have none: it is named and not called."""

_lock = Lock()


class Loop:
    """One compiled loop.

    Args:
        name: its own.
        address: of its machine code.
    """

    def __init__(self, name: str, address: int) -> None:
        self._name = name
        self._call = _PROTOTYPE(address)

    def __call__(self, *arguments: npt.NDArray[np.generic] | int) -> int:
        """Runs it.

        Args:
            arguments: arrays of one or two dimensions in C's order, of the dtypes that the loop's docstring has.

        Returns:
            Its result.
        """
        told = np.zeros((len(arguments), FIELDS), np.int64)
        for row, argument in zip(told, arguments, strict=True):
            if isinstance(argument, np.ndarray):
                if not argument.flags.c_contiguous:
                    raise ValueError(f"{self._name} takes arrays without gaps")
                row[0] = argument.ctypes.data
                row[1 : 1 + argument.ndim] = argument.shape
            else:
                row[0] = argument
        result, error = ctypes.c_int64(), ctypes.c_void_p()
        status = self._call(ctypes.addressof(result), ctypes.addressof(error), told.ctypes.data)
        if status:
            raise RuntimeError(f"{self._name} failed ({status})")
        return result.value


class Loops:
    """All of them.

    Args:
        code: an object file in which they are.

    Attributes:
        compare_block, row_distances, count_errors: see ``loops``.
    """

    def __init__(self, code: bytes) -> None:
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        builder.import_symbol("NRT_MemInfo_call_dtor", ctypes.cast(_NEVER, ctypes.c_void_p).value)
        for name in NAMES:
            builder.export_symbol(name)
        self._linker = llvm.create_lljit_compiler(suppress_errors=True)
        # The code is there as long as both are.
        self._linked = builder.link(self._linker, "loops")
        self.compare_block, self.row_distances, self.count_errors = (Loop(name, self._linked[name]) for name in NAMES)


def load() -> Loops:
    """The loops; where none are kept for this processor they are compiled, which takes twenty seconds, and kept."""
    with _lock:
        return _load()


@cache
def _load() -> Loops:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name = f"loops-{_key()}.o"
    for folder in folders():
        code = _kept(folder / name)
        if code is not None:
            # What another machine has left may be for a system of another kind.
            with suppress(RuntimeError):
                return Loops(code)
    code = _compile()
    for folder in folders():
        with suppress(OSError):
            _keep(folder / name, code)
            break
    return Loops(code)


def folders() -> Iterator[Path]:
    """Where machine code may be kept: a folder that was named, beside the package's bytecode, the user's cache."""
    named = os.environ.get(FOLDER_ENV)
    if named:
        yield Path(named)
    with suppress(NotImplementedError, TypeError):
        yield Path(importlib.util.cache_from_source(str(loops.__file__))).parent
    with suppress(RuntimeError):  # nobody's home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eagle-parity"


def trusted_owners() -> set[int] | None:
    """Whose machine code is run: one's own, the administrator's, and that of whose Python code is run here anyway."""
    if not hasattr(os, "geteuid"):
        return None
    owners = {0, os.geteuid()}
    with suppress(OSError):  # in an archive
        owners.add(Path(str(loops.__file__)).stat().st_uid)
    return owners


def _key() -> str:
    known = hashlib.sha256()
    for file in sorted(resources.files(loops).iterdir(), key=lambda each: each.name):
        if file.name.endswith(".py"):
            known.update(file.read_bytes())
    for told in (importlib.metadata.version("numba"), llvmlite.__version__, llvm.get_process_triple(), *_processor()):
        known.update(f"\n{told}".encode())
    return known.hexdigest()[:24]


def _processor() -> tuple[str, str]:
    """Its name and what it can do, as LLVM takes them."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _kept(path: Path) -> bytes | None:
    """What is kept there; None where nothing is, not all of it, or what somebody else may have put there."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            owners = trusted_owners()
            if status.st_size > _MOST_BYTES or (owners is not None and status.st_uid not in owners):
                return None
            content = file.read()
    except OSError:
        return None
    start = len(_MAGIC) + _DIGEST_BYTES
    code = content[start:]
    return code if content[:start] == _MAGIC + hashlib.sha256(code).digest() else None


def _keep(path: Path, code: bytes) -> None:
    """Whole or not at all: another process may be reading."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_MAGIC + hashlib.sha256(code).digest() + code)
        # As bytecode is: whoever can run the package can use it.
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _compile() -> bytes:
    """An object file of the loops."""
    from numba import types

    from eagle_parity.numerics.loops import entries

    module = llvm.parse_assembly("")
    for name in NAMES:
        entry = getattr(entries, name)
        entry.compile((types.uint64,))
        (signature,) = entry.signatures
        part = llvm.parse_assembly(entry.inspect_llvm(signature))
        part.get_function(entry.overloads[signature].fndesc.llvm_func_name).name = name
        module.link_in(part)
    cpu, features = _processor()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=cpu, features=features, opt=_OPTIMISATION, reloc="default", codemodel="jitdefault", jit=True
    )
    code: bytes = machine.emit_object(module)
    return code
