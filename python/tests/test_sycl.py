"""Calls on SYCL queues, in dpctl's memory: ordered by the queue, with nothing else between producer, call and consumer."""

from __future__ import annotations

import unittest

import cclx
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


@unittest.skipIf(dpctl is None, "no dpctl")
class Queues(unittest.TestCase):
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
