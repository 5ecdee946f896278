"""Calls that wait for events of Level Zero and signal them, made through the real loader, and lists of the caller's."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
import unittest
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_uint32, c_uint64, c_void_p
from typing import Any

import cclx
import ranks
from test_calls import refused, same, value

COUNT = 300
NOT_READY = 1


class PoolDesc(ctypes.Structure):
    _fields_ = [("stype", c_int), ("next", c_void_p), ("flags", c_uint32), ("count", c_uint32)]


class EventDesc(ctypes.Structure):
    _fields_ = [("stype", c_int), ("next", c_void_p), ("index", c_uint32), ("signal", c_uint32), ("wait", c_uint32)]


class QueueDesc(ctypes.Structure):
    _fields_ = [
        *[("stype", c_int), ("next", c_void_p), ("ordinal", c_uint32), ("index", c_uint32)],
        *[("flags", c_uint32), ("mode", c_int), ("priority", c_int)],
    ]


class ListDesc(ctypes.Structure):
    _fields_ = [("stype", c_int), ("next", c_void_p), ("ordinal", c_uint32), ("flags", c_uint32)]


class Event:
    """One that the host sees, too."""

    def __init__(self, handle: int, loader: ctypes.CDLL) -> None:
        self.handle, self.loader = handle, loader

    def is_there(self) -> bool:
        code = self.loader.zeEventQueryStatus(c_void_p(self.handle))
        assert code in (0, NOT_READY), code
        return bool(code == 0)

    def signal(self) -> None:
        assert self.loader.zeEventHostSignal(c_void_p(self.handle)) == 0

    def await_it(self) -> None:
        assert self.loader.zeEventHostSynchronize(c_void_p(self.handle), c_uint64(60_000_000_000)) == 0


def events(comm: cclx.Communicator, loader: ctypes.CDLL, count: int) -> list[Event]:
    _, context, device = comm.handles()
    pool, made = c_void_p(), []
    desc = PoolDesc(0x10, None, 1, count)
    assert loader.zeEventPoolCreate(c_void_p(context), byref(desc), 1, byref(c_void_p(device)), byref(pool)) == 0
    for index in range(count):
        event = c_void_p()
        assert loader.zeEventCreate(pool, byref(EventDesc(0x11, None, index, 4, 4)), byref(event)) == 0
        assert event.value
        made.append(Event(event.value, loader))
    return made


def between_events(rank: int, size: int, unique_id: bytes) -> None:
    loader = ctypes.CDLL("libze_loader.so.1")
    sums = [float(sum(value(of, i) for of in range(size))) for i in range(COUNT)]
    mine, back = (ctypes.c_float * COUNT)(*(value(rank, i) for i in range(COUNT))), (ctypes.c_float * COUNT)()
    with cclx.Communicator(unique_id, rank, size, device=rank) as comm:
        _, context, device = comm.handles()
        command_list = c_void_p()
        desc = QueueDesc(0xE, None, 0, 0, 2, 2, 0)
        assert (
            loader.zeCommandListCreateImmediate(c_void_p(context), c_void_p(device), byref(desc), byref(command_list)) == 0
        )
        memory = cclx.device_memory(COUNT, cclx.DataType.FLOAT32)
        with comm.stream(1) as other, cclx.Stream(comm, command_list=command_list.value) as own:
            before, after = events(comm, loader, 2)
            own.copy(memory, mine)
            comm.all_reduce_after(memory, stream=own, wait=[before], signal=after.handle)
            other.copy(back, memory, wait=[after])
            time.sleep(0.3)
            assert not after.is_there(), "the call is to begin after its event"
            try:
                other.synchronize(0.1)
            except cclx.Unfinished:
                pass
            else:
                raise AssertionError("the copy is to begin after the call")
            same(back, [0.0] * COUNT)
            before.signal()
            after.await_it()
            other.synchronize()
            same(back, sums)
            own.synchronize()
        assert loader.zeCommandListDestroy(command_list) == 0


class Lent:
    """A rank, memory that a test lends to a call and forgets, and what the call gives."""

    def __init__(self, rank: int, size: int, comm: cclx.Communicator, loader: ctypes.CDLL) -> None:
        self.comm, self.loader = comm, loader
        self.sums = [float(sum(value(of, i) for of in range(size))) for i in range(COUNT)]
        self.mine = (ctypes.c_float * COUNT)(*(value(rank, i) for i in range(COUNT)))
        self.out = cclx.device_memory(COUNT, cclx.DataType.FLOAT32)
        self.gone: weakref.ref[cclx.DeviceBuffer] | None = None

    def memory(self) -> cclx.DeviceBuffer:
        """With this rank's numbers; the result is spoilt."""
        lent = cclx.device_memory(COUNT, cclx.DataType.FLOAT32)
        with self.comm.stream(1) as stream:
            stream.copy(lent, self.mine)
            stream.copy(self.out, (ctypes.c_float * COUNT)(*[-1.0] * COUNT))
        self.gone = weakref.ref(lent)
        return lent

    def is_kept(self) -> bool:
        gc.collect()
        assert self.gone is not None
        return self.gone() is not None

    def check(self) -> None:
        """The call was right, and its memory has gone since."""
        assert not self.is_kept(), "what has ended keeps its memory"
        self.check_result()

    def check_result(self) -> None:
        back = (ctypes.c_float * COUNT)()
        with self.comm.stream(1) as stream:
            stream.copy(back, self.out)
        same(back, self.sums)

    @contextmanager
    def list(self, regular: bool = False) -> Iterator[int]:
        """A command list of the caller's."""
        _, context, device = self.comm.handles()
        made, place = c_void_p(), (c_void_p(context), c_void_p(device))
        if regular:
            code = self.loader.zeCommandListCreate(*place, byref(ListDesc(0xF, None, 0, 0)), byref(made))
        else:
            desc = QueueDesc(0xE, None, 0, 0, 2, 2, 0)
            code = self.loader.zeCommandListCreateImmediate(*place, byref(desc), byref(made))
        assert code == 0 and made.value
        yield made.value
        assert self.loader.zeCommandListDestroy(made) == 0


def in_a_while(event: Event) -> None:
    threading.Timer(0.5, event.signal).start()


def ends_behind_the_work(rank: int, size: int, unique_id: bytes) -> None:
    """Whatever ends a stream waits for its work, and what the work uses stays until then."""
    cclx.stream._AT_MOST = 100.0
    loader = ctypes.CDLL("libze_loader.so.1")
    with cclx.Communicator(unique_id, rank, size, device=rank) as comm:
        own = Lent(rank, size, comm, loader)
        for of_caller in (True, False):
            with own.list() as command_list:
                place = {"command_list": command_list} if of_caller else {}
                closed, left, collected = events(comm, loader, 3)
                # Closed too early, and again.
                stream, lent = cclx.Stream(comm, **place), own.memory()
                comm.all_reduce_after(lent, own.out, stream=stream, wait=[closed])
                del lent
                refused(cclx.Unfinished, lambda: stream.close(0.2), "is not done after 0.2 s")
                assert own.is_kept()
                in_a_while(closed)
                stream.close()
                assert closed.is_there(), "close waits"
                own.check()
                stream.close()
                refused(ValueError, stream.synchronize, "closed")
                # Left by its block.
                lent = own.memory()
                with cclx.Stream(comm, **place) as stream:
                    comm.all_reduce_after(lent, own.out, stream=stream, wait=[left])
                    del lent
                    assert own.is_kept()
                    in_a_while(left)
                assert left.is_there(), "a block's end waits"
                own.check()
                # Collected.
                stream, lent = cclx.Stream(comm, **place), own.memory()
                comm.all_reduce_after(lent, own.out, stream=stream, wait=[collected])
                del lent
                in_a_while(collected)
                del stream
                gc.collect()
                assert collected.is_there(), "a stream that is collected waits"
                own.check()


def waits_in_vain(rank: int, size: int, unique_id: bytes) -> None:
    """Work that does not end keeps its memory, and nothing waits for it without a limit."""
    loader = ctypes.CDLL("libze_loader.so.1")
    cclx.stream._AT_MOST = 0.2
    told: list[Any] = []
    with cclx.Communicator(unique_id, rank, size, device=rank) as comm:
        own = Lent(rank, size, comm, loader)
        with own.list() as command_list:
            raised, collected = events(comm, loader, 2)
            lent = own.memory()
            try:
                with cclx.Stream(comm, command_list=command_list) as stream:
                    comm.all_reduce_after(lent, own.out, stream=stream, wait=[raised])
                    del lent
                    raise KeyError("mine")
            except KeyError:
                assert own.is_kept()
            raised.signal()
            stream.close()
            own.check()
            lent = own.memory()
            stream = cclx.Stream(comm, command_list=command_list)
            comm.all_reduce_after(lent, own.out, stream=stream, wait=[collected])
            del lent
            sys.unraisablehook = told.append
            del stream
            gc.collect()
            sys.unraisablehook = sys.__unraisablehook__
            assert "memory that it uses is kept" in str(told[0].exc_value), told
            told.clear()
            assert own.is_kept()
            collected.signal()
            with cclx.Stream(comm, command_list=command_list) as stream:
                stream.synchronize()
            own.check_result()
            assert own.is_kept(), "for good"


def within_groups(rank: int, size: int, unique_id: bytes) -> None:
    """Calls of a group are on their stream from the group's end on, whatever happened to the stream before."""
    cclx.stream._AT_MOST = 100.0
    loader = ctypes.CDLL("libze_loader.so.1")
    with cclx.Communicator(unique_id, rank, size, device=rank) as comm:
        own = Lent(rank, size, comm, loader)
        with own.list() as command_list:
            before, again = events(comm, loader, 2)
            lent = own.memory()
            with cclx.Stream(comm, command_list=command_list) as stream:
                with cclx.group():
                    comm.all_reduce_after(lent, own.out, stream=stream)
                    del lent
                    stream.synchronize()
                    assert own.is_kept(), "the call is not made yet"
                stream.synchronize()
                own.check()
            other = cclx.device_memory(COUNT, cclx.DataType.FLOAT32)
            for event, ends in ((before, lambda: stream.close()), (again, lambda: None)):
                stream, lent = cclx.Stream(comm, command_list=command_list), own.memory()
                comm.all_reduce_after(other, stream=stream, wait=[event])
                with cclx.group():
                    with cclx.group():
                        comm.all_reduce_after(lent, own.out, stream=stream)
                    ends()
                    del lent, stream
                    assert own.is_kept() and not event.is_there(), "the call is not made yet"
                    in_a_while(event)
                assert event.is_there(), "the group's end closes the stream"
                own.check()


def on_a_list_that_records(rank: int, size: int, unique_id: bytes) -> None:
    """When its last replay ends can't be known here."""
    loader = ctypes.CDLL("libze_loader.so.1")
    with cclx.Communicator(unique_id, rank, size, device=rank) as comm:
        own = Lent(rank, size, comm, loader)
        with own.list(regular=True) as command_list:
            lent = own.memory()
            with cclx.Stream(comm, command_list=command_list) as stream:
                comm.all_reduce_after(lent, own.out, stream=stream)
                del lent
                refused(cclx.InvalidUsage, stream.synchronize, "records")
            refused(ValueError, lambda: stream.handle, "closed")
            assert own.is_kept(), "for good"


@unittest.skipUnless(os.environ.get("CCLX_DEVICE") == "loader", "wants the Level Zero loader")
class Events(unittest.TestCase):
    def test_between_events(self) -> None:
        ranks.run(between_events, 2, bytes(cclx.UniqueId.create()))

    def test_a_stream_ends_behind_its_work(self) -> None:
        ranks.run(ends_behind_the_work, 2, bytes(cclx.UniqueId.create()))

    def test_work_that_does_not_end_keeps_its_memory(self) -> None:
        ranks.run(waits_in_vain, 2, bytes(cclx.UniqueId.create()))

    def test_streams_within_groups(self) -> None:
        ranks.run(within_groups, 2, bytes(cclx.UniqueId.create()))

    def test_a_stream_on_a_list_that_records(self) -> None:
        ranks.run(on_a_list_that_records, 2, bytes(cclx.UniqueId.create()))


if __name__ == "__main__":
    unittest.main()
