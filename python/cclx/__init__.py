"""Collectives between the processes of one host, through libcclx.so: oneCCL's calls, and those that it has beyond them.

Nothing is compiled: the calls go by ctypes, on anything that has memory (docs/python.md).
"""

from ._group import group
from ._library import library_path
from .buffers import Buffer, DataType, DeviceBuffer
from .communicator import Communicator, ReduceOp, UniqueId, device_memory, set_device, version
from .errors import (
    AllocationFailure,
    DeviceFailure,
    Error,
    InternalError,
    InvalidArgument,
    InvalidUsage,
    NotImplementedByLibrary,
    SystemFailure,
    Unfinished,
)
from .mhc import Design, MhcParams, Variant
from .stream import Stream

__all__ = [
    "AllocationFailure",
    "Buffer",
    "Communicator",
    "DataType",
    "Design",
    "DeviceBuffer",
    "DeviceFailure",
    "Error",
    "InternalError",
    "InvalidArgument",
    "InvalidUsage",
    "MhcParams",
    "NotImplementedByLibrary",
    "ReduceOp",
    "Stream",
    "SystemFailure",
    "Unfinished",
    "UniqueId",
    "Variant",
    "device_memory",
    "group",
    "library_path",
    "set_device",
    "version",
]
