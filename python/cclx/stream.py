"""Streams of device work, and what Level Zero's events are to the calls."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Union

from ._library import IN_PROGRESS, call
from .buffers import buffer_of, to_write
from .errors import Unfinished

if TYPE_CHECKING:
    from .communicator import Communicator

#: A Level Zero event: its handle as a number, or an object that has it as ``handle``.
Event = Union[int, Any]


def event_handles(events: Iterable[Event]) -> tuple[int, Any]:
    """How many, and where their handles are."""
    handles = [_handle(event) for event in events]
    return len(handles), (ctypes.c_void_p * len(handles))(*handles) if handles else None


def _handle(event: Event) -> int:
    handle = event if isinstance(event, int) else event.handle
    if not isinstance(handle, int) or handle == 0:
        raise TypeError(f"{event!r} is no event")
    return handle


def one_handle(event: Event | None) -> int | None:
    """That of an event, or none."""
    return None if event is None else _handle(event)


class Stream:
    """Work of a device. Without more the library makes one, in order; else it is of a Level Zero command list of the
    communicator's context and device (:meth:`Communicator.handles`), which has to outlive this, or of a SYCL queue: the
    address of a ``sycl::queue`` in order, of SYCL's default context (dpctl's ``queue.addressof_ref()``).

    What calls use stays referenced until :meth:`synchronize` or :meth:`close`."""

    def __init__(
        self,
        communicator: Communicator,
        queue: int = 0,
        command_list: int | None = None,
        sycl_queue: int | None = None,
    ) -> None:
        if command_list is not None and sycl_queue is not None:
            raise ValueError("a stream is of a command list or of a queue")
        place = ctypes.c_void_p()
        if command_list is not None:
            call("cclxStreamCreate", communicator.handle, command_list, ctypes.byref(place))
        elif sycl_queue is not None:
            call("cclxStreamFromQueue", communicator.handle, sycl_queue, ctypes.byref(place))
        else:
            call("cclxStreamOpen", communicator.handle, queue, ctypes.byref(place))
        self._stream = int(place.value or 0)
        self._kept: list[Any] = []
        self._end = weakref.finalize(self, call, "cclxStreamDestroy", self._stream)
        self._end.atexit = False

    @property
    def handle(self) -> int:
        """The C handle."""
        if not self._end.alive:
            raise ValueError("the stream is closed")
        return self._stream

    def keep(self, *things: Any) -> None:
        """Keeps what the stream's work uses until it has been waited for."""
        self._kept.extend(things)

    def copy(self, to: Any, source: Any, wait: Iterable[Event] = ()) -> None:
        """Appends a copy of all of ``source``, after the events of ``wait``."""
        to, source = to_write(to, "what is copied to"), buffer_of(source)
        if to.nbytes != source.nbytes:
            raise ValueError(f"{source.nbytes} bytes are copied to {to.nbytes}")
        wait = tuple(wait)
        count, events = event_handles(wait)
        call("cclxStreamCopy", self.handle, to.address, source.address, to.nbytes, count, events)
        self.keep(to, source, wait)

    def synchronize(self, timeout: float = 300.0) -> None:
        """Waits for what is on the stream, so many seconds at most. A collective that failed is told by
        :meth:`Communicator.check`."""
        if call("cclxStreamSynchronize", self.handle, round(timeout * 1000), allow=(IN_PROGRESS,)) != 0:
            raise Unfinished("cclxStreamSynchronize", IN_PROGRESS, "in progress", f"not done after {timeout} s")
        self._kept.clear()

    def close(self) -> None:
        """Waits for the work and ends the stream; a list or queue of the caller's stays."""
        self._end()
        self._kept.clear()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
