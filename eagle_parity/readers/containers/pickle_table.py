"""The tensors that a pickle describes, found without unpickling it.

``torch.save`` writes a pickle that rebuilds tensors from storages that lie elsewhere in the file. Even torch's
``weights_only`` unpickler calls functions whose arguments the file chooses (``bytearray(10**13)`` is among them), so
nothing is called here at all: the opcodes are followed with inert values, and whatever isn't a tensor, a container or a
constant ends the reading. It needs no torch either.

Written for what ``torch.save`` of tensors, strings, numbers, lists, tuples and dicts gives with pickle protocols 2 to 5
(torch 2.13, ``torch/_utils.py``: ``_rebuild_tensor_v2``, ``_rebuild_tensor_v3``, ``_rebuild_parameter``).
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable  # noqa: TC003  a field
from dataclasses import dataclass, field
from typing import Any

from eagle_parity.readers.containers.stored_tensor import (
    ITEM_BYTES,
    MAX_RANK,
    StoredTensor,
    UnreadableFileError,
)
from eagle_parity.readers.containers.tensor_table import shorten

MAX_PICKLE_BYTES = 16 * 1024 * 1024
"""The pickle of a shard has kilobytes: the numbers are stored beside it."""

WAY_OUT = "re-save it as safetensors, or with torch.save of tensors only"

STORAGE_DTYPES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "UntypedStorage": "uint8",
}
"""The classes by which storages are named; an untyped one counts bytes, and the tensor brings its dtype."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage that the pickle refers to.

    Attributes:
        key: its name in the file.
        dtype: of its numbers.
        numbers: how many it claims.
    """

    key: str
    dtype: str
    numbers: int


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that is of no use here, such as a string's bytes or an empty ordered dict."""


@dataclass(frozen=True, slots=True)
class _Global:
    module: str
    name: str


_MARK = object()
_REBUILD = {
    _Global("torch._utils", "_rebuild_tensor_v2"),
    _Global("torch._utils", "_rebuild_tensor_v3"),
    _Global("torch._utils", "_rebuild_parameter"),
    _Global("collections", "OrderedDict"),
    _Global("torch", "Size"),
}


@dataclass(frozen=True, slots=True)
class Description:
    """What a pickle describes.

    Attributes:
        value: dicts, lists and tuples as such; tensors as ``StoredTensor``; other constants as they are or ``Opaque``.
        length: how many bytes the pickle had.
    """

    value: Any
    length: int


def describe_pickle(data: bytes, place: Callable[[Storage], int]) -> Description:
    """Follows one pickle.

    Args:
        data: the pickle, and maybe more behind it.
        place: gives the byte at which a storage's numbers start, having checked that the file has as many as it claims.

    Raises:
        UnreadableFileError: it calls something, is truncated, or describes a tensor that its storage doesn't hold.
    """
    machine = _Machine(place)
    stream = io.BytesIO(data)
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            if opcode.name == "STOP":
                return Description(machine.pop(), stream.tell())
            machine.step(opcode.name, argument)
    except UnreadableFileError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, UnicodeError) as error:
        raise UnreadableFileError(f"its pickle is damaged ({shorten(str(error) or type(error).__name__)})") from error
    raise UnreadableFileError("its pickle is truncated")


@dataclass(slots=True)
class _Machine:
    place: Callable[[Storage], int]
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError("a mark where a value was expected")
        return value

    def pop_to_mark(self) -> list[Any]:
        values: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        values.reverse()
        return values

    def step(self, name: str, argument: Any) -> None:
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _LITERALS:
            self.stack.append(argument)
        elif name in _BYTES:
            self.stack.append(Opaque())
        elif name in _REMEMBERING:
            self.memo[len(self.memo) if argument is None else int(argument)] = self.stack[-1]
        elif name in _RECALLING:
            self.stack.append(self.memo[int(argument)])
        elif name == "GLOBAL":
            module, _, attribute = str(argument).partition(" ")
            self.stack.append(_resolve(module, attribute))
        elif name in _SHAPING:
            _SHAPING[name](self)
        elif name not in _FRAMING:
            raise UnreadableFileError(f"its pickle holds more than tensors (opcode {name}); {WAY_OUT}")

    def name_function(self) -> None:
        attribute, module = self.pop(), self.pop()
        self.stack.append(_resolve(module, attribute))

    def build_storage(self) -> None:
        reference = self.pop()
        kind, storage_class, key, _, numbers, *_ = reference
        if kind != "storage" or type(numbers) is not int or numbers < 0 or not isinstance(key, str):
            raise ValueError("no storage reference")
        self.stack.append(Storage(key, STORAGE_DTYPES[storage_class.name], numbers))

    def build_tensor(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, _Global) or function not in _REBUILD:
            raise ValueError("a call of what is no function")
        if function.name == "OrderedDict":
            self.stack.append({} if not arguments else Opaque())
        elif function.name == "Size":
            self.stack.append(_sizes(arguments[0]))
        elif function.name == "_rebuild_parameter":
            self.stack.append(arguments[0])
        else:
            storage, offset, shape, stride = arguments[:4]
            dtype = storage.dtype
            if function.name == "_rebuild_tensor_v3":
                dtype = arguments[6].name
            self.stack.append(_tensor(storage, dtype, (offset, shape, stride), self.place(storage)))

    def append(self) -> None:
        value = self.pop()
        self.stack[-1].append(value)

    def extend(self) -> None:
        values = self.pop_to_mark()
        self.stack[-1].extend(values)

    def set_item(self) -> None:
        value, key = self.pop(), self.pop()
        self.stack[-1].update(_pairs([key, value]))

    def set_items(self) -> None:
        values = self.pop_to_mark()
        self.stack[-1].update(_pairs(values))

    def tuple_of(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.stack.append(tuple(reversed(values)))

    def make_dict(self) -> None:
        self.stack.append(_pairs(self.pop_to_mark()))

    def make_list(self) -> None:
        self.stack.append(self.pop_to_mark())

    def make_tuple(self) -> None:
        self.stack.append(tuple(self.pop_to_mark()))

    def discard(self) -> None:
        self.stack.pop()

    def discard_to_mark(self) -> None:
        self.pop_to_mark()


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "MARK": lambda: _MARK,
}
_LITERALS = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING"),
    }
)
_BYTES = frozenset({"BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"})
_REMEMBERING = frozenset({"BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"})
_RECALLING = frozenset({"BINGET", "LONG_BINGET", "GET"})
_FRAMING = frozenset({"PROTO", "FRAME"})
_SHAPING: dict[str, Callable[[_Machine], None]] = {
    "POP": _Machine.discard,
    "POP_MARK": _Machine.discard_to_mark,
    "BINPERSID": _Machine.build_storage,
    "REDUCE": _Machine.build_tensor,
    "STACK_GLOBAL": _Machine.name_function,
    # An ordered dict's attributes, such as a state dict's _metadata: of no use here.
    "BUILD": _Machine.discard,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.extend,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "DICT": _Machine.make_dict,
    "LIST": _Machine.make_list,
    "TUPLE": _Machine.make_tuple,
    "TUPLE1": lambda machine: machine.tuple_of(1),
    "TUPLE2": lambda machine: machine.tuple_of(2),
    "TUPLE3": lambda machine: machine.tuple_of(3),
}


def _pairs(values: list[Any]) -> dict[Any, Any]:
    # Hashing a tuple that is nested a million deep overflows the C stack: only plain keys are hashed.
    if not all(isinstance(key, str | int) for key in values[::2]):
        raise UnreadableFileError(f"its pickle has keys that are neither text nor numbers; {WAY_OUT}")
    return dict(zip(values[::2], values[1::2], strict=True))


def _resolve(module: object, name: object) -> _Global:
    if not isinstance(module, str) or not isinstance(name, str):
        raise ValueError("a function without a name")  # noqa: TRY004  one kind of damage, told like the others
    reference = _Global(module, name)
    is_storage = module in ("torch", "torch.storage") and name in STORAGE_DTYPES
    is_dtype = module == "torch" and name in ITEM_BYTES
    if reference in _REBUILD or is_storage or is_dtype:
        return reference
    raise UnreadableFileError(f"its pickle wants to call {shorten(f'{module}.{name}')}, which is refused; {WAY_OUT}")


def _sizes(values: Any) -> tuple[int, ...]:
    if not isinstance(values, tuple | list) or len(values) > MAX_RANK:
        raise ValueError("a tensor's sizes are no sizes")
    if not all(type(n) is int and 0 <= n < 2**63 for n in values):
        raise ValueError("a tensor's sizes are no sizes")
    return tuple(values)


def _tensor(storage: Storage, dtype: str, geometry: tuple[Any, Any, Any], start: int) -> StoredTensor:
    """A tensor of a storage whose numbers begin at byte ``start``, from its offset, shape and stride."""
    ((offset,), shape, stride) = _sizes([geometry[0]]), _sizes(geometry[1]), _sizes(geometry[2])
    tensor = StoredTensor(dtype, shape, stride, start + offset * ITEM_BYTES[dtype])
    # Where a storage counts bytes (an untyped one), the tensor's own numbers are what its offset and stride count.
    held = storage.numbers * ITEM_BYTES[storage.dtype] // ITEM_BYTES[dtype]
    # An expanded tensor (stride 0) claims more numbers than it has: no trainer writes one, and reading it would
    # allocate what it claims.
    needed = max(tensor.numbers, offset + tensor.span if tensor.span else 0)
    if needed > held:
        raise UnreadableFileError(
            f"damaged: a tensor {tensor} needs {min(needed, 2**63):,} numbers of a storage that has {held:,}"
        )
    return tensor
