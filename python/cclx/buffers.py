"""What the calls take as memory: tensors, arrays, ctypes objects, Python's buffers, and memory of the device."""

from __future__ import annotations

import ctypes
import enum
import weakref
from dataclasses import dataclass
from typing import Any

from ._library import call


class DataType(enum.IntEnum):
    """Types of elements, by oneCCL's numbers."""

    INT8 = 0
    UINT8 = 1
    INT32 = 2
    UINT32 = 3
    INT64 = 4
    UINT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return _SIZES[self]


_SIZES = dict(zip(DataType, (1, 1, 4, 4, 8, 8, 2, 4, 8, 2)))

#: By the names that torch and numpy have; a truth value travels as a byte.
_BY_NAME = {
    "int8": DataType.INT8,
    "uint8": DataType.UINT8,
    "bool": DataType.UINT8,
    "int32": DataType.INT32,
    "uint32": DataType.UINT32,
    "int64": DataType.INT64,
    "uint64": DataType.UINT64,
    "float16": DataType.FLOAT16,
    "float32": DataType.FLOAT32,
    "float64": DataType.FLOAT64,
    "bfloat16": DataType.BFLOAT16,
}
#: By kind and size, as numpy's interface and Python's buffers tell them.
_BY_KIND = {
    ("i", 1): DataType.INT8,
    ("u", 1): DataType.UINT8,
    ("b", 1): DataType.UINT8,
    ("i", 4): DataType.INT32,
    ("u", 4): DataType.UINT32,
    ("i", 8): DataType.INT64,
    ("u", 8): DataType.UINT64,
    ("f", 2): DataType.FLOAT16,
    ("f", 4): DataType.FLOAT32,
    ("f", 8): DataType.FLOAT64,
}
#: Letters of the struct module.
_KIND_OF_FORMAT = {**dict.fromkeys("bhilqn", "i"), **dict.fromkeys("BHILQNc", "u"), **dict.fromkeys("efd", "f"), "?": "b"}


@dataclass(frozen=True)
class Buffer:
    """Elements in a row. Made by hand, it lends memory that nothing else describes: ``keep`` stays as long as it does."""

    address: int
    count: int
    dtype: DataType
    on_device: bool = False
    read_only: bool = False
    truth: bool = False
    keep: Any = None

    @property
    def nbytes(self) -> int:
        """Bytes of it."""
        return self.count * self.dtype.size

    def data_ptr(self) -> int:
        """Its address."""
        return self.address


class DeviceBuffer:
    """Memory of the device that was chosen (:func:`cclx.set_device`), freed when nobody refers to it any more."""

    def __init__(self, count: int, dtype: DataType = DataType.UINT8) -> None:
        dtype = DataType(dtype)
        if count < 0:
            raise ValueError(f"{count} elements")
        place = ctypes.c_void_p()
        call("onecclMemAlloc", ctypes.byref(place), count * dtype.size)
        self._address = int(place.value or 0)
        self._free = weakref.finalize(self, call, "onecclMemFree", self._address)
        # At the end of the process the driver may have gone before.
        self._free.atexit = False
        self.count = count
        self.dtype = dtype

    @property
    def nbytes(self) -> int:
        """Bytes of it."""
        return self.count * self.dtype.size

    def data_ptr(self) -> int:
        """Its address, of the device."""
        return self._address

    def part(self, offset: int, count: int, dtype: DataType | None = None) -> Buffer:
        """``count`` elements from byte ``offset`` on."""
        dtype = self.dtype if dtype is None else DataType(dtype)
        if offset < 0 or count < 0 or offset + count * dtype.size > self.nbytes:
            raise ValueError(f"{count} elements of {dtype.name} at byte {offset} pass the end of {self.nbytes} bytes")
        return Buffer(self._address + offset, count, dtype, on_device=True, keep=self)


def buffer_of(thing: Any) -> Buffer:
    """What a caller gave, as elements in a row."""
    if isinstance(thing, Buffer):
        return thing
    if isinstance(thing, DeviceBuffer):
        return thing.part(0, thing.count)
    if hasattr(thing, "data_ptr") and hasattr(thing, "numel"):
        return _of_tensor(thing)
    interface = getattr(thing, "__array_interface__", None)
    if interface is not None:
        return _of_array(thing, interface)
    return _of_memory(thing)


def _of_tensor(tensor: Any) -> Buffer:
    name = str(tensor.dtype).rsplit(".", 1)[-1]
    if name not in _BY_NAME:
        raise TypeError(f"elements of {tensor.dtype}: view them as uint8 if they are only to be moved")
    if not tensor.is_contiguous():
        raise ValueError("the tensor is not contiguous")
    kind = getattr(getattr(tensor, "device", None), "type", "cpu")
    if kind not in ("cpu", "xpu"):
        raise ValueError(f"a tensor on {kind}")
    return Buffer(tensor.data_ptr(), tensor.numel(), _BY_NAME[name], kind == "xpu", False, name == "bool", tensor)


def _of_array(array: Any, interface: dict[str, Any]) -> Buffer:
    order, kind, size = interface["typestr"][0], interface["typestr"][1], int(interface["typestr"][2:])
    dtype = _BY_KIND.get((kind, size))
    if str(getattr(array, "dtype", "")) == "bfloat16":
        # As the ml_dtypes package has it: numpy itself calls it bytes without a type.
        dtype = DataType.BFLOAT16
    if dtype is None or order == ">":
        raise TypeError(f"elements of {interface['typestr']}")
    count, expected = 1, []
    for length in reversed(interface["shape"]):
        expected.append(count * size)
        count *= length
    strides = interface.get("strides")
    if strides is not None and count > 0 and tuple(strides) != tuple(reversed(expected)):
        raise ValueError("the array is not contiguous")
    address, read_only = interface["data"]
    return Buffer(address, count, dtype, False, read_only, kind == "b", array)


def _of_memory(thing: Any) -> Buffer:
    try:
        view = memoryview(thing)
    except TypeError:
        raise TypeError(f"{type(thing).__name__} is no memory: a tensor, array, ctypes object or buffer is") from None
    if not view.c_contiguous:
        raise ValueError("the buffer is not contiguous")
    # ctypes says "<f" where array says "f".
    letter = view.format.lstrip("@=<")
    dtype = _BY_KIND.get((_KIND_OF_FORMAT.get(letter, "?"), view.itemsize))
    if dtype is None:
        raise TypeError(f"elements of format {view.format!r}")
    count = view.nbytes // view.itemsize
    if view.nbytes == 0:
        address = 0
    elif view.readonly:
        # ctypes lends no address of what may not be written; bytes lie where the interpreter has them.
        if not isinstance(thing, bytes):
            raise ValueError("the buffer may not be written; pass bytes, or a copy")
        address = ctypes.cast(ctypes.c_char_p(thing), ctypes.c_void_p).value or 0
    else:
        address = ctypes.addressof(thing if isinstance(thing, ctypes.Array) else ctypes.c_char.from_buffer(thing))
    # The view keeps the memory where it is, as a bytearray's could move.
    return Buffer(address, count, dtype, False, view.readonly, letter == "?", (thing, view))


def to_write(thing: Any, what: str) -> Buffer:
    """The same, of what the call writes."""
    buffer = buffer_of(thing)
    if buffer.read_only:
        raise ValueError(f"{what} may not be written")
    return buffer
