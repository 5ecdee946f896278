"""Calls that wait for events of Level Zero and signal them, made through the real loader, and lists of the caller's."""

from __future__ import annotations

import ctypes
import os
import time
import unittest
from ctypes import byref, c_int, c_uint32, c_uint64, c_void_p

import cclx
import ranks
from test_calls import same, value

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


@unittest.skipUnless(os.environ.get("CCLX_DEVICE") == "loader", "wants the Level Zero loader")
class Events(unittest.TestCase):
    def test_between_events(self) -> None:
        ranks.run(between_events, 2, bytes(cclx.UniqueId.create()))


if __name__ == "__main__":
    unittest.main()
