"""mHC boundaries (docs/numerics.md): their parameters."""

from __future__ import annotations

import ctypes
import enum
from ctypes import c_float, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from .buffers import Buffer, DataType, buffer_of

_VERSION = 1


class Variant(enum.IntEnum):
    """What a boundary computes."""

    V4 = 0
    V41 = 1
    POST = 2
    PRE = 3
    HEAD = 4


class Design(enum.IntEnum):
    """How an all-reduce and its boundary are computed. All have the same bits; not every call has each."""

    AUTO = 0
    UNFUSED = 1
    A = 2
    B = 3
    C = 4


_TENSORS_BEFORE_FN = ["x", "residual", "post", "comb", "previous_pre", "fn_weights"]
_TENSORS_AFTER_FN = [
    *["scale", "base", "norm_weight"],
    *["x_out", "residual_out", "post_out", "comb_out", "pre_out", "y", "normed"],
]
_NUMBERS: list[tuple[str, Any]] = [
    ("size", c_size_t),
    ("version", c_uint32),
    ("variant", c_int),
    ("datatype", c_int),
    ("design", c_int),
    ("rows", c_uint64),
    ("hidden", c_uint64),
    ("streams", c_uint32),
    ("sinkhorn_iterations", c_uint32),
    ("rms_eps", c_float),
    ("pre_eps", c_float),
    ("sinkhorn_eps", c_float),
    ("post_multiplier", c_float),
    ("has_norm", c_int),
    ("norm_eps", c_float),
]


class MhcStruct(ctypes.Structure):
    """``cclxMhcParams``."""

    _fields_ = [
        *_NUMBERS,
        *[(name, c_void_p) for name in _TENSORS_BEFORE_FN],
        ("fn_rows", c_uint64),
        ("fn_columns", c_uint64),
        *[(name, c_void_p) for name in _TENSORS_AFTER_FN],
    ]


@dataclass
class MhcParams:
    """A boundary. Tensors are contiguous, in device memory; what the variant doesn't use stays None. ``x``, ``residual``,
    ``y`` and the norm's weight are of ``dtype`` (bfloat16, float16 or float32), the rest is float32.

    ``residual_out``, ``post_out`` and ``comb_out`` may be the storage of ``residual``, ``post`` and ``comb``, exactly, and
    ``x_out`` that of ``x``."""

    variant: Variant
    dtype: DataType
    rows: int
    hidden: int
    streams: int = 4
    design: Design = Design.AUTO
    sinkhorn_iterations: int = 1
    rms_eps: float = 0.0
    pre_eps: float = 0.0
    sinkhorn_eps: float = 0.0
    post_multiplier: float = 1.0
    norm_eps: float | None = None
    x: Any = None
    residual: Any = None
    post: Any = None
    comb: Any = None
    previous_pre: Any = None
    fn: Any = None
    scale: Any = None
    base: Any = None
    norm_weight: Any = None
    x_out: Any = None
    residual_out: Any = None
    post_out: Any = None
    comb_out: Any = None
    pre_out: Any = None
    y: Any = None
    normed: Any = None

    def shapes(self) -> dict[str, tuple[int, DataType]]:
        """Elements and type of each tensor."""
        rows, hidden, streams = self.rows, self.hidden, self.streams
        coefficients = streams if self.variant == Variant.HEAD else (2 + streams) * streams
        flat, wide = (rows * hidden, DataType(self.dtype)), (rows * streams * hidden, DataType(self.dtype))
        gate, mixing = (rows * streams, DataType.FLOAT32), (rows * streams * streams, DataType.FLOAT32)
        return {
            "x": flat,
            "residual": wide,
            "post": gate,
            "comb": mixing,
            "previous_pre": gate,
            "fn": (coefficients * streams * hidden, DataType.FLOAT32),
            "scale": (1 if self.variant == Variant.HEAD else 3, DataType.FLOAT32),
            "base": (coefficients, DataType.FLOAT32),
            "norm_weight": (hidden, DataType(self.dtype)),
            "x_out": flat,
            "residual_out": wide,
            "post_out": gate,
            "comb_out": mixing,
            "pre_out": gate,
            "y": flat,
            "normed": flat,
        }

    def to_struct(self) -> tuple[MhcStruct, list[Buffer]]:
        """As C takes it, and what it points to."""
        struct = MhcStruct(size=ctypes.sizeof(MhcStruct), version=_VERSION, variant=self.variant, datatype=self.dtype)
        struct.design, struct.rows, struct.hidden, struct.streams = self.design, self.rows, self.hidden, self.streams
        for name in ("sinkhorn_iterations", "rms_eps", "pre_eps", "sinkhorn_eps", "post_multiplier"):
            setattr(struct, name, getattr(self, name))
        struct.has_norm, struct.norm_eps = int(self.norm_eps is not None), self.norm_eps or 0.0
        kept = []
        for name, (count, dtype) in self.shapes().items():
            given = getattr(self, name)
            if given is None:
                continue
            buffer = buffer_of(given)
            if not buffer.on_device:
                raise ValueError(f"{name}: mHC takes memory of the device")
            if (buffer.count, buffer.dtype) != (count, dtype):
                raise ValueError(f"{name}: {buffer.count} elements of {buffer.dtype.name}, not {count} of {dtype.name}")
            setattr(struct, "fn_weights" if name == "fn" else name, buffer.address)
            kept.append(buffer)
        if self.fn is not None:
            struct.fn_rows, struct.fn_columns = self.shapes()["base"][0], self.streams * self.hidden
        return struct, kept
