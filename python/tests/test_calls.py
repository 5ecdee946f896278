"""Every call between processes, on memory of the host and of the device, against plain Python."""

from __future__ import annotations

import array
import ctypes
import gc
import os
import unittest
from collections.abc import Callable

import cclx
import ranks


def value(rank: int, i: int) -> int:
    """A small integer that depends on both."""
    return (rank * 7 + i * 3) % 11 - 5


def ints(rank: int, count: int, first: int = 0) -> array.array[int]:
    return array.array("i", [value(rank, first + i) for i in range(count)])


def same(got: object, want: list[float]) -> None:
    assert list(got) == list(want), f"{list(got)} is not {list(want)}"  # type: ignore[call-overload]


def refused(kind: type[BaseException], call: Callable[[], object], words: str) -> None:
    try:
        call()
    except kind as error:
        assert words in str(error), str(error)
    else:
        raise AssertionError(f"not refused: {words}")


def every_collective(rank: int, size: int, unique_id: bytes) -> None:
    everyone = range(size)
    with cclx.Communicator(unique_id, rank, size, device=rank) as comm:
        assert (comm.rank, comm.size, comm.device) == (rank, size, rank)
        for count in (0, 1, 5, 300):
            sums = [sum(value(of, i) for of in everyone) for i in range(count)]
            data = ints(rank, count)
            comm.all_reduce(data)
            same(data, sums)
            out = array.array("i", bytes(4 * count))
            comm.all_reduce(ints(rank, count), out, cclx.ReduceOp.MAX)
            same(out, [max(value(of, i) for of in everyone) for i in range(count)])
            for root in everyone:
                out = ints(99, count)
                comm.reduce(ints(rank, count), out if rank == root else None, root)
                same(out, sums if rank == root else ints(99, count))
                out = ints(rank, count)
                comm.broadcast(out, root)
                same(out, ints(root, count))
                whole = ints(root, count * size) if rank == root else None
                comm.scatter(whole, out, root)
                same(out, ints(root, count, rank * count))
            whole = ints(rank, count * size)
            comm.reduce_scatter(whole, out)
            same(out, [sum(value(of, rank * count + i) for of in everyone) for i in range(count)])
            comm.all_gather(ints(rank, count), whole)
            same(whole, [value(of, i) for of in everyone for i in range(count)])
            comm.all_to_all(ints(rank, count * size), whole)
            same(whole, [value(of, rank * count + i) for of in everyone for i in range(count)])
            # From rank a to rank b go (a + 2b) mod 3 times count elements.
            to = [(rank + 2 * of) % 3 * count for of in everyone]
            come = [(of + 2 * rank) % 3 * count for of in everyone]
            out = array.array("i", bytes(4 * sum(come)))
            comm.all_to_all_v(ints(rank, sum(to)), to, out, come)
            starts = [sum((of + 2 * b) % 3 * count for b in range(rank)) for of in everyone]
            same(out, [value(of, starts[of] + i) for of in everyone for i in range(come[of])])
            # In a group sends and receives need no order, and buffers may be let go of.
            received = [array.array("i", bytes(4 * count)) for _ in everyone]
            with cclx.group():
                for of in everyone:
                    comm.recv(received[of], of)
                with cclx.group():
                    for of in everyone:
                        comm.send(ints(rank, count, of), of)
                gc.collect()
            for of in everyone:
                same(received[of], ints(of, count, rank))
        truths = (ctypes.c_bool * 4)(True, rank == 0, False, rank == size - 1)
        comm.all_reduce(truths)
        same(truths, [True, True, False, True])
        comm.all_reduce(truths, op=cclx.ReduceOp.PROD)
        same(truths, [True, True, False, True])
        for dtype, letter in ((cclx.DataType.FLOAT32, "f"), (cclx.DataType.INT64, "q")):
            with comm.premultiplied_sum(rank + 1, dtype) as op:
                data = array.array(letter, [value(rank, i) for i in range(40)])
                comm.all_reduce(data, op=op)
                same(data, [sum((of + 1) * value(of, i) for of in everyone) for i in range(40)])
        refused(ValueError, lambda: comm.premultiplied_sum(1.5, cclx.DataType.INT8).__enter__(), "1.5 is no INT8")
        comm.barrier()
        for found in (cclx.Communicator.find(), cclx.Communicator.find(unique_id), cclx.Communicator.find(device=rank)):
            assert found.handle == comm.handle and found.rank == rank
            del found
        gc.collect()
        refused(cclx.InvalidUsage, lambda: cclx.Communicator.find(device=size), "communicator")
        refused(cclx.InvalidArgument, lambda: cclx.Communicator(unique_id, 2**32 + rank, size), str(2**32 + rank))
        refused(cclx.InvalidArgument, lambda: cclx.set_device(-1), "-1")
        refused(ValueError, lambda: cclx.Communicator(unique_id, rank, size, max_work_groups=10**12), "max_work_groups")
        refused(TypeError, lambda: comm.all_reduce(truths, op="sum"), "ReduceOp")
        refused(cclx.Error, lambda: cclx.Stream(comm, sycl_queue=ctypes.addressof(ctypes.c_void_p())), "SYCL")
        refused(ValueError, lambda: cclx.Stream(comm, command_list=8, sycl_queue=8), "of a command list or of a queue")
        part = comm.split(None if rank == 0 else 1, -rank)
        assert (part is None) == (rank == 0)
        if part is not None:
            assert (part.size, part.rank) == (size - 1, size - 1 - rank)
            data = array.array("d", [rank])
            part.all_reduce(data)
            same(data, [sum(range(size))])
            part.finalize()
            refused(cclx.InvalidUsage, lambda: part.all_reduce(data), "finalized")
            part.destroy()
            part.destroy()
            refused(ValueError, lambda: part.rank, "is destroyed")
        data = ints(rank, 3)
        refused(ValueError, lambda: comm.all_reduce(data, array.array("i", [0])), "3 elements of INT32 are sent and 1")
        refused(ValueError, lambda: comm.all_gather(data, ints(0, 3 * size + 1)), "elements of INT32 are not")
        refused(ValueError, lambda: comm.all_reduce(b"abc"), "may not be written")
        refused(cclx.InvalidArgument, lambda: comm.broadcast(data, size), f"root {size} of {size} ranks")
        refused(cclx.InvalidArgument, lambda: comm.all_reduce(data, op=77), "77")
        comm.all_reduce(data)
        same(data, [sum(value(of, i) for of in everyone) for i in range(3)])


def memory_of_the_device(rank: int, size: int, unique_id: bytes) -> None:
    with cclx.Communicator(unique_id, rank, size, device=rank) as comm:
        driver, context, device = comm.handles()
        assert driver and context and device
        sums = [float(sum(value(of, i) for of in range(size))) for i in range(500)]
        memory = cclx.device_memory(1000, cclx.DataType.FLOAT32)
        first, second = memory.part(0, 500), memory.part(2000, 500)
        mine, back = (ctypes.c_float * 500)(*(value(rank, i) for i in range(500))), (ctypes.c_float * 500)()
        with comm.stream() as stream:
            for _ in range(3):
                stream.copy(first, mine)
                comm.all_reduce_after(first, second, stream=stream)
                stream.copy(back, second)
                stream.synchronize()
                same(back, sums)
                ctypes.memset(back, 0, 2000)
            # Without a stream the same calls take the device's memory too, each kind on either side.
            comm.all_reduce(first, back)
            same(back, sums)
            comm.all_reduce(mine, second)
            stream.copy(back, second)
            stream.synchronize()
            same(back, sums)
            comm.all_reduce(first)
            stream.copy(back, first)
            stream.synchronize()
            same(back, sums)
            with cclx.group():
                comm.broadcast(first, 0, send=second)
                comm.broadcast(back, 0)
            same(back, sums)
            refused(ValueError, lambda: comm.all_reduce_after(mine, stream=stream), "takes memory of the device")
            refused(TypeError, lambda: stream.copy(first, mine, wait=[0]), "is no event")
            refused(ValueError, lambda: stream.copy(memory, mine), "2000 bytes are copied to 4000")
            refused(ValueError, lambda: memory.part(8, 999), "pass the end")
            # What is in flight stays, though nobody here refers to it any more.
            for turn in range(20):
                lent = cclx.device_memory(500, cclx.DataType.FLOAT32)
                stream.copy(lent, mine)
                comm.all_reduce_after(lent, stream=stream)
                stream.copy(back, lent)
                del lent
                if turn % 5 == 4:
                    stream.synchronize()
                    same(back, sums)
        refused(ValueError, lambda: comm.all_reduce_after(first, stream=stream), "closed")


def boundary(rank: int, size: int, unique_id: bytes) -> None:
    """Post alone: x' = post x + comb X, where comb is the identity."""
    rows, hidden, streams = 3, 70, 2
    with cclx.Communicator(unique_id, rank, size, device=rank) as comm, comm.stream() as stream:
        x = [value(rank, i) for i in range(rows * hidden)]
        residual = [float(i % 17) for i in range(rows * streams * hidden)]
        post, comb = [3.0, 5.0] * rows, [1.0, 0.0, 0.0, 1.0] * rows
        held = {}
        for name, numbers in (("x", x), ("residual", residual), ("post", post), ("comb", comb)):
            held[name] = cclx.device_memory(len(numbers), cclx.DataType.FLOAT32)
            stream.copy(held[name], (ctypes.c_float * len(numbers))(*numbers))
        params = cclx.MhcParams(cclx.Variant.POST, cclx.DataType.FLOAT32, rows, hidden, streams, **held)
        params.x_out, params.residual_out = held["x"], held["residual"]
        refused(cclx.InvalidUsage, lambda: comm.all_reduce_mhc(params, stream), "mHC")
        comm.prepare_mhc()
        comm.all_reduce_mhc(params, stream)
        back_x, back = (ctypes.c_float * (rows * hidden))(), (ctypes.c_float * len(residual))()
        stream.copy(back_x, held["x"])
        stream.copy(back, held["residual"])
        stream.synchronize()
        sums = [sum(value(of, i) for of in range(size)) for i in range(rows * hidden)]
        same(back_x, sums)
        want = list(residual)
        for i, total in enumerate(sums):
            for s, factor in enumerate((3.0, 5.0)):
                want[(i // hidden * streams + s) * hidden + i % hidden] += factor * total
        same(back, want)
        comm.mhc(params, stream)
        stream.copy(back, held["residual"])
        stream.synchronize()
        for i, total in enumerate(sums):
            for s, factor in enumerate((3.0, 5.0)):
                want[(i // hidden * streams + s) * hidden + i % hidden] += factor * total
        same(back, want)
        params.post = held["x"]
        refused(ValueError, lambda: comm.mhc(params, stream), "post: 210 elements of FLOAT32, not 6 of FLOAT32")
        params.post = (ctypes.c_float * 6)()
        refused(ValueError, lambda: comm.mhc(params, stream), "post: mHC takes memory of the device")
        params.post = held["post"].part(0, 6)
        params.streams = 3
        params.residual = params.residual_out = params.comb = None
        refused(ValueError, lambda: comm.mhc(params, stream), "post: 6 elements of FLOAT32, not 9")


def a_rank_leaves(rank: int, size: int, unique_id: bytes) -> None:
    comm = cclx.Communicator(unique_id, rank, size, device=rank)
    if rank == 1:
        comm.barrier()
        comm.abort()
        return
    # The first may end in it already: the other rank need not wait for this one to be through.
    refused(cclx.Error, lambda: [comm.barrier() for _ in range(1000)], "onecclCommAbort was called")
    refused(cclx.Error, comm.check, "onecclCommAbort was called")
    comm.destroy()


def several_ranks_of_one_process(_rank: int, _size: int) -> None:
    made = []
    unique_id = cclx.UniqueId.create()
    with cclx.group():
        for rank in range(3):
            made.append(cclx.Communicator(unique_id, rank, 3, device=rank, max_work_groups=2))
            # The handle is there at once, and of use when the group has ended.
            refused(cclx.InvalidUsage, lambda: made[0].rank, "still being made")
    held = [ints(rank, 50) for rank in range(3)]
    with cclx.group():
        for comm, data in zip(made, held):
            comm.all_reduce(data)
    for data in held:
        same(data, [sum(value(of, i) for of in range(3)) for i in range(50)])
    try:
        with cclx.group():
            made[0].send(held[0], 0)
            made[0].recv(held[1], 0)
            raise KeyError("mine")
    except KeyError:
        same(held[1], held[0].tolist())
    else:
        raise AssertionError("the block's own error is the one to be seen")
    made.clear()
    del comm
    gc.collect()


def groups_whose_block_raises(_rank: int, _size: int, unique_id: bytes) -> None:
    """What was accepted is made, unless the library refused a call of the group."""
    with cclx.Communicator(unique_id, 0, 1, device=0) as comm:
        data, nothing = ints(0, 30), ints(1, 30)

        def in_a_group(*then: Callable[[], object]) -> tuple[list[int], BaseException]:
            out = nothing[:]
            try:
                with cclx.group():
                    comm.all_reduce(data, out)
                    for call in then:
                        call()
                    raise KeyError("mine")
            except (cclx.Error, KeyError, ValueError) as error:
                return out.tolist(), error

        def refused_by_the_library() -> None:
            refused(cclx.InvalidArgument, lambda: comm.send(data, 99), "99")

        made, error = in_a_group()
        same(made, data.tolist())
        assert isinstance(error, KeyError) and error.__context__ is None
        # This package's own refusals never come to the library.
        made, error = in_a_group(lambda: comm.all_reduce(data, ints(0, 3)))
        same(made, data.tolist())
        assert isinstance(error, ValueError) and error.__context__ is None
        made, error = in_a_group(lambda: comm.send(data, 99))
        same(made, nothing.tolist())
        assert isinstance(error, cclx.InvalidArgument) and "99" in str(error)
        # One that nobody sees otherwise.
        made, error = in_a_group(refused_by_the_library)
        same(made, nothing.tolist())
        assert isinstance(error, KeyError) and "99" in str(error.__context__), repr(error.__context__)
        try:
            with cclx.group():
                refused_by_the_library()
        except cclx.InvalidArgument as of_end:
            assert of_end.call == "onecclGroupEnd" and "99" in str(of_end)
        else:
            raise AssertionError("a group of which nothing is made says nothing")
        # The next one knows nothing of it.
        with cclx.group():
            comm.all_reduce(data, nothing)
        same(nothing, data.tolist())


class Calls(unittest.TestCase):
    def test_every_collective(self) -> None:
        for size in (1, 3):
            ranks.run(every_collective, size, bytes(cclx.UniqueId.create()))

    def test_memory_of_the_device(self) -> None:
        ranks.run(memory_of_the_device, 2, bytes(cclx.UniqueId.create()))

    def test_boundary(self) -> None:
        ranks.run(boundary, 2, bytes(cclx.UniqueId.create()))

    def test_failures_are_exceptions_on_request(self) -> None:
        os.environ["CCLX_ON_ERROR"] = "log"
        try:
            ranks.run(a_rank_leaves, 2, bytes(cclx.UniqueId.create()))
        finally:
            del os.environ["CCLX_ON_ERROR"]

    def test_several_ranks_of_one_process(self) -> None:
        ranks.run(several_ranks_of_one_process, 1)

    def test_groups_whose_block_raises(self) -> None:
        ranks.run(groups_whose_block_raises, 1, bytes(cclx.UniqueId.create()))


if __name__ == "__main__":
    unittest.main()
