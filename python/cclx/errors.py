"""The library's failures as exceptions: each has the code and the text that names what went wrong."""

from __future__ import annotations


class Error(Exception):
    """A call failed. ``code`` is oneCCL's number, ``call`` the C function, ``text`` what the library said."""

    def __init__(self, call: str, code: int, name: str, text: str) -> None:
        super().__init__(text or f"{call}: {name} ({code})")
        self.call = call
        self.code = code
        self.name = name
        self.text = text

    def __reduce__(self) -> tuple[type[Error], tuple[str, int, str, str]]:
        return type(self), (self.call, self.code, self.name, self.text)


class SystemFailure(Error):
    """The operating system refused something, or a rank is gone."""


class InternalError(Error):
    """The library is at fault."""


class InvalidArgument(Error, ValueError):
    """An argument that can't be; nothing was begun."""


class InvalidUsage(Error, RuntimeError):
    """A call at the wrong time, or on what has ended; nothing was begun."""


class Unfinished(Error):
    """Not done within the time that was given."""


class DeviceFailure(Error):
    """The device or its driver failed."""


class AllocationFailure(Error, MemoryError):
    """There is not enough memory, of the host or of the device."""


class NotImplementedByLibrary(Error, NotImplementedError):
    """The library doesn't have this; nothing was begun."""


_BY_CODE: dict[int, type[Error]] = {
    2: SystemFailure,
    3: InternalError,
    4: InvalidArgument,
    5: InvalidUsage,
    6: Unfinished,
    7: DeviceFailure,
    9: AllocationFailure,
    10: AllocationFailure,
    12: NotImplementedByLibrary,
}


def of(call: str, code: int, name: str, text: str) -> Error:
    """The exception for a code."""
    return _BY_CODE.get(code, Error)(call, code, name, text)
