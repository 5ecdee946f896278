"""Finds libcclx.so, declares its functions, and makes exceptions of its codes."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any

from . import errors

ID_BYTES = 4096
IN_PROGRESS = 6

#: dlopen's flag to take only what the process has already.
_RTLD_NOLOAD = 4
_NAME = "libcclx.so"


class UniqueIdStruct(ctypes.Structure):
    """oneCCL's identifier; it goes by value."""

    _fields_ = [("data", c_char * ID_BYTES)]


class ConfigStruct(ctypes.Structure):
    """``onecclConfig_t``."""

    _fields_ = [
        ("size", c_size_t),
        ("magic", c_uint32),
        ("version", c_uint32),
        ("blocking", c_int),
        ("cga_cluster_size", c_int),
        ("min_ctas", c_int),
        ("max_ctas", c_int),
        ("net_name", c_char_p),
        ("split_share", c_int),
        ("multi_threaded", c_int),
        ("plugin", c_uint32),
    ]


_SIZE, _PTR, _INT, _COMM = c_size_t, c_void_p, c_int, c_void_p
_EVENTS = [_SIZE, POINTER(c_void_p), _PTR]

#: Arguments of each function; the result is a code unless _RESULTS says otherwise.
_FUNCTIONS: dict[str, list[Any]] = {
    "onecclGetVersion": [POINTER(c_int)],
    "onecclGetUniqueId": [POINTER(UniqueIdStruct)],
    "onecclSetDevice": [c_uint32],
    "onecclCommInitRank": [POINTER(_COMM), _SIZE, UniqueIdStruct, _INT],
    "onecclCommInitRankConfig": [POINTER(_COMM), _SIZE, UniqueIdStruct, _INT, POINTER(ConfigStruct)],
    "onecclCommSplit": [_COMM, _INT, _INT, POINTER(_COMM), POINTER(ConfigStruct)],
    "onecclCommCount": [_COMM, POINTER(c_int)],
    "onecclCommUserRank": [_COMM, POINTER(c_int)],
    "onecclCommDevice": [_COMM, POINTER(c_int)],
    "onecclCommFinalize": [_COMM],
    "onecclCommDestroy": [_COMM],
    "onecclCommAbort": [_COMM],
    "onecclCommGetAsyncError": [_COMM],
    "onecclGetErrorString": [_INT],
    "onecclGetLastError": [_COMM],
    "onecclAllReduce": [_PTR, _PTR, _SIZE, _INT, _INT, _COMM, _PTR],
    "onecclReduce": [_PTR, _PTR, _SIZE, _INT, _INT, _INT, _COMM, _PTR],
    "onecclBroadcast": [_PTR, _PTR, _SIZE, _INT, _INT, _COMM, _PTR],
    "onecclReduceScatter": [_PTR, _PTR, _SIZE, _INT, _INT, _COMM, _PTR],
    "onecclScatter": [_PTR, _PTR, _SIZE, _INT, _INT, _COMM, _PTR],
    "onecclAllGather": [_PTR, _PTR, _SIZE, _INT, _COMM, _PTR],
    "onecclAllToAll": [_PTR, _PTR, _SIZE, _INT, _COMM, _PTR],
    "onecclAllToAllV": [_PTR, POINTER(c_size_t), _PTR, POINTER(c_size_t), _INT, _COMM, _PTR],
    "onecclSend": [_PTR, _SIZE, _INT, _INT, _COMM, _PTR],
    "onecclRecv": [_PTR, _SIZE, _INT, _INT, _COMM, _PTR],
    "onecclGroupStart": [],
    "onecclGroupEnd": [],
    "onecclRedOpCreatePreMulSum": [POINTER(c_int), _PTR, _INT, _INT, _COMM],
    "onecclRedOpDestroy": [_INT, _COMM],
    "onecclMemAlloc": [POINTER(_PTR), _SIZE],
    "onecclMemFree": [_PTR],
    "cclxStreamOpen": [_COMM, _INT, POINTER(_PTR)],
    "cclxStreamCreate": [_COMM, _PTR, POINTER(_PTR)],
    "cclxStreamFromQueue": [_COMM, _PTR, POINTER(_PTR)],
    "cclxStreamDestroy": [_PTR],
    "cclxStreamCopy": [_PTR, _PTR, _PTR, _SIZE, _SIZE, POINTER(c_void_p)],
    "cclxStreamSynchronize": [_PTR, c_uint32],
    "cclxCommHandles": [_COMM, POINTER(_PTR), POINTER(_PTR), POINTER(_PTR)],
    "cclxCommLookup": [_PTR, _INT, POINTER(_COMM)],
    "cclxAllReduceAfter": [_PTR, _PTR, _SIZE, _INT, _INT, _COMM, _PTR, *_EVENTS],
    "cclxMhcPrepare": [_COMM],
    "cclxMhc": [_PTR, _COMM, _PTR, *_EVENTS],
    "cclxAllReduceMhc": [_PTR, _COMM, _PTR, *_EVENTS],
}
_RESULTS = {"onecclGetErrorString": c_char_p, "onecclGetLastError": c_char_p}

#: What C's integers hold, from and up to; ctypes would cut the rest off without a word.
_HELD = {c_int: (-(2**31), 2**31), c_uint32: (0, 2**32), c_size_t: (0, 2**64)}

_library: ctypes.CDLL | None = None


def _already_loaded() -> ctypes.CDLL | None:
    """The library that the process has in oneCCL's place, if that is ours: a second copy would know none of its handles."""
    for name in (_NAME, "libccl.so.2"):
        try:
            found = ctypes.CDLL(name, mode=_RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            continue
        if hasattr(found, "cclxStreamOpen"):
            return found
    return None


def _candidates() -> list[Path]:
    package = Path(__file__).resolve().parent
    target = os.environ.get("CARGO_TARGET_DIR")
    built = Path(target) if target else package.parent.parent / "target"
    return [package / _NAME, built / "release" / _NAME]


def load() -> ctypes.CDLL:
    """The library, loaded at the first call: the file that CCLX_LIBRARY names, else the one that the process has in
    oneCCL's place, else the one beside this package, else the one that cargo built, else the system's."""
    global _library
    if _library is not None:
        return _library
    named = os.environ.get("CCLX_LIBRARY")
    if named:
        library = ctypes.CDLL(named)
    else:
        loaded = _already_loaded()
        if loaded is None:
            path = next((str(path) for path in _candidates() if path.exists()), _NAME)
            try:
                loaded = ctypes.CDLL(path)
            except OSError as error:
                tried = ", ".join(str(path) for path in _candidates())
                raise OSError(f"{_NAME} was not found ({error}): name it in CCLX_LIBRARY; also tried: {tried}") from None
        library = loaded
    for name, arguments in _FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise OSError(f"{named or library._name} has no {name}: it is another library, or too old") from None
        function.argtypes = arguments
        function.restype = _RESULTS.get(name, c_int)
    _library = library
    return library


def library_path() -> str:
    """The file that the library was loaded from."""
    library = load()

    class Info(ctypes.Structure):
        _fields_ = [("name", c_char_p), ("base", c_void_p), ("symbol", c_char_p), ("address", c_void_p)]

    info = Info()
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes, dladdr.restype = [c_void_p, POINTER(Info)], c_int
    address = ctypes.cast(library.cclxStreamOpen, c_void_p)
    if dladdr(address, ctypes.byref(info)) == 0 or not info.name:
        return str(library._name)
    return os.fsdecode(info.name)


def call(name: str, *arguments: Any, allow: tuple[int, ...] = (), told_of: int | None = None) -> int:
    """Calls a function; a code that is neither 0 nor allowed becomes an exception with the library's words: on this thread's
    last failure, or on the first one of the communicator ``told_of``."""
    library = load()
    for kind, value in zip(_FUNCTIONS[name], arguments):
        if kind in _HELD and isinstance(value, int) and not _HELD[kind][0] <= value < _HELD[kind][1]:
            raise errors.of(name, 4, "invalid argument", f"{value} is not a number that {name} can be given there")
    code = int(getattr(library, name)(*arguments))
    if code != 0 and code not in allow:
        said = library.onecclGetLastError(told_of) if code != IN_PROGRESS else b""
        kind = library.onecclGetErrorString(code) or b"unknown result"
        raise errors.of(name, code, kind.decode(), (said or b"").decode(errors="replace"))
    return code
