"""Calls on SYCL queues, in dpctl's memory: ordered by the queue, with nothing else between producer, call and consumer."""

from __future__ import annotations

import os
import unittest

import cclx
import ranks
from test_calls import refused

try:
    import dpctl
    import dpctl.memory
    import numpy as np
except ImportError:
    dpctl = None

COUNT = 5000


def input_of(rank: int, turn: int) -> "np.ndarray":
    return ((np.arange(COUNT) * 7 + rank * 31 + turn * 3) % 1009).astype(np.float32)


class OnQueue:
    """A rank with device memory of one array on a queue of its own."""

    def __init__(self, rank: int, size: int, unique_id: bytes) -> None:
        # The runtime is to be in use before a communicator is made.
        self.queue = dpctl.SyclQueue(dpctl.get_devices(backend="level_zero", device_type="gpu")[rank], property="in_order")
        self.comm = cclx.Communicator(unique_id, rank, size, device=rank)
        self.stream = cclx.Stream(self.comm, sycl_queue=self.queue.addressof_ref())
        self.held = dpctl.memory.MemoryUSMDevice(4 * COUNT, queue=self.queue)
        self.lent = cclx.Buffer(self.held._pointer, COUNT, cclx.DataType.FLOAT32, on_device=True, keep=self.held)

    def put(self, values: "np.ndarray") -> None:
        self.queue.memcpy(self.held, values.view(np.uint8), 4 * COUNT)

    def get(self) -> "np.ndarray":
        back = np.empty(COUNT, dtype=np.float32)
        self.queue.memcpy(back.view(np.uint8), self.held, 4 * COUNT)
        return back

    def all_reduce(self) -> None:
        self.comm.all_reduce_after(self.lent, stream=self.stream)


def _of_process(rank: int, size: int, unique_id: bytes) -> None:
    own = OnQueue(rank, size, unique_id)
    for turn in range(10):
        own.put(input_of(rank, turn))
        own.all_reduce()
        wanted = sum(input_of(peer, turn) for peer in range(size))
        assert (own.get() == wanted).all(), f"turn {turn}, rank {rank}"
    own.comm.check()
    own.stream.close()
    own.comm.destroy()


def _aborted(rank: int, size: int, unique_id: bytes) -> None:
    os.environ["CCLX_ON_ERROR"] = "log"
    own = OnQueue(rank, size, unique_id)
    own.put(input_of(rank, 0))
    if rank == 0:
        own.all_reduce()
        try:
            # The other rank doesn't come.
            own.stream.synchronize(0.2)
            raise AssertionError("a call is over that one rank has not made")
        except cclx.Unfinished:
            pass
        own.comm.abort()
        words = "aborted"
    else:
        words = "onecclCommAbort was called"
        while True:
            try:
                own.comm.check()
            except cclx.Error as error:
                assert words in str(error), error
                break
    own.stream.synchronize()
    if rank == 0:
        assert (own.get().view(np.uint32) == 0xFFFFFFFF).all(), own.get()
    else:
        assert (own.get() == input_of(rank, 0)).all()
    for call in (own.all_reduce, own.comm.check):
        try:
            call()
            raise AssertionError("a communicator that has failed says nothing")
        except cclx.Error as error:
            assert words in str(error), error
    own.queue.wait()
    own.stream.close()
    own.comm.destroy()


@unittest.skipIf(dpctl is None, "no dpctl")
class Queues(unittest.TestCase):
    def test_processes(self) -> None:
        ranks.run(_of_process, 2, bytes(cclx.UniqueId.create()))

    def test_an_abort_in_processes(self) -> None:
        ranks.run(_aborted, 2, bytes(cclx.UniqueId.create()))

    def test_two_ranks_of_one_process(self) -> None:
        devices = dpctl.get_devices(backend="level_zero", device_type="gpu")[:2]
        # The runtime is to be in use before a communicator is made.
        queues = [dpctl.SyclQueue(device, property="in_order") for device in devices]
        unique_id = cclx.UniqueId.create()
        with cclx.group():
            comms = [cclx.Communicator(unique_id, rank, 2, device=rank) for rank in range(2)]
        streams = [cclx.Stream(comm, sycl_queue=queue.addressof_ref()) for comm, queue in zip(comms, queues)]
        held = [dpctl.memory.MemoryUSMDevice(4 * COUNT, queue=queue) for queue in queues]
        backs = [dpctl.memory.MemoryUSMHost(4 * COUNT, queue=queue) for queue in queues]
        for turn in range(20):
            inputs = [input_of(rank, turn) for rank in range(2)]
            for rank, queue in enumerate(queues):
                queue.memcpy_async(held[rank], inputs[rank].view(np.uint8), 4 * COUNT)
                lent = cclx.Buffer(held[rank]._pointer, COUNT, cclx.DataType.FLOAT32, on_device=True, keep=held[rank])
                comms[rank].all_reduce_after(lent, stream=streams[rank])
                queue.memcpy_async(backs[rank], held[rank], 4 * COUNT)
            for rank, queue in enumerate(queues):
                queue.wait()
                result = np.frombuffer(backs[rank], dtype=np.float32)
                self.assertTrue((result == inputs[0] + inputs[1]).all(), f"turn {turn}, rank {rank}")
        for comm in comms:
            comm.check()
        loose = dpctl.SyclQueue(devices[0])
        refused(
            cclx.NotImplementedByLibrary, lambda: cclx.Stream(comms[0], sycl_queue=loose.addressof_ref()), "not in order"
        )
        refused(cclx.InvalidArgument, lambda: cclx.Stream(comms[0], sycl_queue=queues[1].addressof_ref()), "another device")
        for stream in streams:
            stream.close()
        for comm in comms:
            comm.destroy()


if __name__ == "__main__":
    unittest.main()
