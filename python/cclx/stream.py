"""Streams of device work, and what Level Zero's events are to the calls."""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Union

from ._library import IN_PROGRESS, call
from .buffers import buffer_of, to_write
from .errors import Error, InvalidUsage, Unfinished

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


#: Seconds for which a stream is waited for that nobody refers to any more, or whose block has raised.
_AT_MOST = 10.0

#: What work uses that no wait has seen the end of: it stays as long as the process does.
_unended: list[_Work] = []


class _Work:
    """A stream's handle, and what the work on it uses. It outlives the stream object where the work does."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.kept: list[Any] = []

    def synchronize(self, timeout: float) -> None:
        """Waits, and lets go of what was kept before."""
        # What another thread adds meanwhile may not be waited for.
        waited_for, self.kept = self.kept, []
        try:
            if call("cclxStreamSynchronize", self.handle, round(timeout * 1000), allow=(IN_PROGRESS,)) != 0:
                text = f"the stream's work is not done after {timeout} s; the memory that it uses is kept"
                raise Unfinished("cclxStreamSynchronize", IN_PROGRESS, "in progress", text)
        except BaseException:
            self.kept[:0] = waited_for
            raise

    def settle(self, timeout: float) -> None:
        """Waits for the last time. Fails where that is in vain."""
        try:
            self.synchronize(timeout)
        except InvalidUsage:
            # It records. When the last replay has ended is nothing that can be waited for here.
            _unended.append(self)

    def destroy(self) -> None:
        """Ends the stream, whose work has been waited for."""
        call("cclxStreamDestroy", self.handle)


def _collect(work: _Work, process: int) -> None:
    """Ends the stream of an object that is gone. A list of the caller's may go next, so there is no second try."""
    if os.getpid() != process:
        # A forked child has the object, but neither the stream nor its work.
        return _unended.append(work)
    try:
        work.settle(_AT_MOST)
    except BaseException:
        _unended.append(work)
        raise
    work.destroy()


class Stream:
    """Work of a device. Without more the library makes one, in order; else it is of a Level Zero command list of the
    communicator's context and device (:meth:`Communicator.handles`), which has to outlive this, or of a SYCL queue: the
    address of a ``sycl::queue`` in order, of SYCL's default context (dpctl's ``queue.addressof_ref()``).

    What calls use stays referenced until :meth:`synchronize` or :meth:`close` has seen their end, that of a stream which
    records for good. A stream that is collected is waited for as well, ten seconds at most: what its work still uses then
    is never freed, which is told on standard error. A ``with`` block closes it, and waits no longer than that if it
    raises."""

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
        self._work = _Work(int(place.value or 0))
        # Calls of open groups, which are not on the stream yet.
        self._promised: list[Any] = []
        self._closing: float | None = None
        self._end = weakref.finalize(self, _collect, self._work, os.getpid())
        self._end.atexit = False

    @property
    def handle(self) -> int:
        """The C handle."""
        self._check_open()
        return self._work.handle

    def _check_open(self) -> None:
        if not self._end.alive or self._closing is not None:
            raise ValueError("the stream is closed")

    def keep(self, *things: Any) -> None:
        """Keeps what the stream's work uses until it has been waited for."""
        self._work.kept.extend(things)

    def promise(self, things: tuple[Any, ...]) -> None:
        """The same of a call that is made at the end of a group; :meth:`redeem` has to follow."""
        self._promised.append(things)

    def redeem(self, things: tuple[Any, ...]) -> None:
        """The group of a promised call has ended. The last one closes a stream that was closed meanwhile."""
        self.keep(*things)
        self._promised.pop()
        if not self._promised and self._closing is not None:
            timeout, self._closing = self._closing, None
            self.close(timeout)

    def copy(self, to: Any, source: Any, wait: Iterable[Event] = ()) -> None:
        """Appends a copy of all of ``source``, after the events of ``wait``."""
        to, source = to_write(to, "what is copied to"), buffer_of(source)
        if to.nbytes != source.nbytes:
            raise ValueError(f"{source.nbytes} bytes are copied to {to.nbytes}")
        wait = tuple(wait)
        count, events = event_handles(wait)
        arguments = (self.handle, to.address, source.address, to.nbytes, count, events)
        try:
            call("cclxStreamCopy", *arguments)
        finally:
            # As calls do.
            self.keep(to, source, wait)

    def synchronize(self, timeout: float = 300.0) -> None:
        """Waits for what is on the stream, so many seconds at most: not for calls of a group that is open. A collective that
        failed is told by :meth:`Communicator.check`."""
        self._check_open()
        self._work.synchronize(timeout)

    def close(self, timeout: float = 300.0) -> None:
        """Waits for the work, so many seconds at most, and ends the stream; a list or queue of the caller's stays. If the
        work does not end by then, this raises :class:`Unfinished`, the stream stays open and keeps what its work uses. A
        stream that has calls of an open group is closed when that has ended."""
        if not self._end.alive:
            return
        if self._promised:
            self._closing = timeout
            return
        self._work.settle(timeout)
        if self._end.detach():
            self._work.destroy()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            return self.close()
        # What went wrong in the block is the error to be seen, and that soon.
        with contextlib.suppress(Error):
            self.close(_AT_MOST)
