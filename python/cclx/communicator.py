"""Communicators and their collectives, with the semantics of oneCCL's C calls (docs/abi.md)."""

from __future__ import annotations

import contextlib
import ctypes
import enum
import operator
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ._group import is_open, issue, issue_on
from ._library import ID_BYTES, ConfigStruct, UniqueIdStruct, call
from .buffers import Buffer, DataType, DeviceBuffer, buffer_of, to_write
from .errors import InvalidUsage
from .mhc import MhcParams
from .stream import Event, Stream, event_handles, one_handle

_NO_COLOR = -1
_UNDEFINED = -(2**31)
_HOST_SCALAR = 1


class ReduceOp(enum.IntEnum):
    """Reductions, by oneCCL's numbers."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4


class UniqueId:
    """What ranks find each other by: 4096 bytes that one rank makes and the others are handed."""

    def __init__(self, data: bytes) -> None:
        if len(data) != ID_BYTES:
            raise ValueError(f"an id has {ID_BYTES} bytes, not {len(data)}")
        self._data = bytes(data)

    @classmethod
    def create(cls) -> UniqueId:
        """A new one; ranks meet in this process, which has to live until they have."""
        made = UniqueIdStruct()
        call("onecclGetUniqueId", ctypes.byref(made))
        return cls(ctypes.string_at(ctypes.byref(made), ID_BYTES))

    def __bytes__(self) -> bytes:
        return self._data

    def to_struct(self) -> UniqueIdStruct:
        """As C takes it."""
        return UniqueIdStruct.from_buffer_copy(self._data)


def version() -> int:
    """oneCCL's version that the library stands for, as its number."""
    number = ctypes.c_int()
    call("onecclGetVersion", ctypes.byref(number))
    return number.value


def set_device(index: int) -> None:
    """Chooses the device of the communicators and memory that this thread makes from now on."""
    call("onecclSetDevice", index)


def device_memory(count: int, dtype: DataType = DataType.UINT8) -> DeviceBuffer:
    """Memory of that device."""
    return DeviceBuffer(count, dtype)


class Communicator:
    """One rank of a group. The calls take host memory (tensors, arrays, ctypes objects, Python's buffers) or memory of the
    device, and return with the result, in a :func:`group` with its end.

    A call that is refused raises and leaves everything as it was. One that fails while it runs ends the process unless
    ``CCLX_ON_ERROR=log`` is set before the library's first call; then it raises."""

    def __init__(
        self,
        unique_id: UniqueId | bytes,
        rank: int,
        size: int,
        device: int | None = None,
        max_work_groups: int | None = None,
    ) -> None:
        if not isinstance(unique_id, UniqueId):
            unique_id = UniqueId(unique_id)
        if device is not None:
            set_device(device)
        place = ctypes.c_void_p()
        if max_work_groups is None:
            issue("onecclCommInitRank", ctypes.byref(place), size, unique_id.to_struct(), rank, keep=(place,))
        else:
            config = _config(max_work_groups)
            arguments = (ctypes.byref(place), size, unique_id.to_struct(), rank, ctypes.byref(config))
            issue("onecclCommInitRankConfig", *arguments, keep=(place, config))
        self._adopt(place)

    def _adopt(self, place: ctypes.c_void_p) -> None:
        self._place = place
        self._end = weakref.finalize(self, _destroy, place)
        # A process that ends says goodbye by itself; waiting for others is not for then.
        self._end.atexit = False

    @classmethod
    def find(cls, unique_id: UniqueId | bytes | None = None, device: int | None = None) -> Communicator:
        """One that somebody else in this process made through the library (torch's process group, say): the one of that id,
        or on that device, or the only one. It stays its maker's: nothing here ends it but :meth:`destroy`."""
        if isinstance(unique_id, UniqueId):
            unique_id = bytes(unique_id)
        if unique_id is not None and len(unique_id) != ID_BYTES:
            raise ValueError(f"an id has {ID_BYTES} bytes, not {len(unique_id)}")
        place = ctypes.c_void_p()
        call("cclxCommLookup", unique_id, -1 if device is None else device, ctypes.byref(place))
        found = cls.__new__(cls)
        found._place = place
        found._end = weakref.finalize(found, _leave, place)
        return found

    @property
    def handle(self) -> int:
        """The C handle."""
        if not self._place.value:
            raise ValueError("the communicator was not made, or is destroyed")
        return self._place.value

    def _number(self, name: str) -> int:
        number = ctypes.c_int()
        call(name, self.handle, ctypes.byref(number))
        return number.value

    @property
    def rank(self) -> int:
        """This rank."""
        return self._number("onecclCommUserRank")

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._number("onecclCommCount")

    @property
    def device(self) -> int:
        """The device's number."""
        return self._number("onecclCommDevice")

    # Collectives.

    def all_reduce(self, send: Any, recv: Any = None, op: int = ReduceOp.SUM) -> None:
        """``recv`` = reduction of all ranks' ``send``; in place without ``recv``."""
        send, recv = _pair(send, recv)
        _same(send, recv)
        arguments = (send.address, recv.address, send.count, send.dtype, _op(op, send), self.handle, None)
        issue("onecclAllReduce", *arguments, keep=(send, recv))

    def reduce(self, send: Any, recv: Any, root: int, op: int = ReduceOp.SUM) -> None:
        """The same on ``root`` only; ``recv`` may be None elsewhere, and in place is the same buffer twice."""
        send = buffer_of(send)
        recv = None if recv is None else to_write(recv, "what is received into")
        if recv is not None:
            _same(send, recv)
        to = recv.address if recv else None
        arguments = (send.address, to, send.count, send.dtype, _op(op, send), root, self.handle, None)
        issue("onecclReduce", *arguments, keep=(send, recv))

    def broadcast(self, recv: Any, root: int, send: Any = None) -> None:
        """``recv`` = the ``send`` of ``root``; without ``send``, root's own ``recv``."""
        recv = to_write(recv, "what is received into")
        send = recv if send is None else buffer_of(send)
        _same(send, recv)
        arguments = (send.address, recv.address, recv.count, recv.dtype, root, self.handle, None)
        issue("onecclBroadcast", *arguments, keep=(send, recv))

    def reduce_scatter(self, send: Any, recv: Any, op: int = ReduceOp.SUM) -> None:
        """``recv`` = this rank's piece of the reduction of all ranks' ``send``, which has a piece for each rank."""
        send, recv = buffer_of(send), to_write(recv, "what is received into")
        self._pieces(send, recv)
        arguments = (send.address, recv.address, recv.count, recv.dtype, _op(op, send), self.handle, None)
        issue("onecclReduceScatter", *arguments, keep=(send, recv))

    def scatter(self, send: Any, recv: Any, root: int) -> None:
        """``recv`` = this rank's piece of the ``send`` of ``root``; ``send`` may be None elsewhere."""
        recv = to_write(recv, "what is received into")
        send = None if send is None else buffer_of(send)
        if send is not None:
            self._pieces(send, recv)
        source = send.address if send else None
        arguments = (source, recv.address, recv.count, recv.dtype, root, self.handle, None)
        issue("onecclScatter", *arguments, keep=(send, recv))

    def all_gather(self, send: Any, recv: Any) -> None:
        """``recv`` = all ranks' ``send``, by rank."""
        send, recv = buffer_of(send), to_write(recv, "what is received into")
        self._pieces(recv, send)
        arguments = (send.address, recv.address, send.count, send.dtype, self.handle, None)
        issue("onecclAllGather", *arguments, keep=(send, recv))

    def all_to_all(self, send: Any, recv: Any) -> None:
        """``recv`` = this rank's pieces of all ranks' ``send``, by rank."""
        send, recv = buffer_of(send), to_write(recv, "what is received into")
        _same(send, recv)
        size = self.size
        if send.count % size:
            raise ValueError(f"{send.count} elements make no {size} equal pieces")
        arguments = (send.address, recv.address, send.count // size, send.dtype, self.handle, None)
        issue("onecclAllToAll", *arguments, keep=(send, recv))

    def all_to_all_v(self, send: Any, send_counts: Sequence[int], recv: Any, recv_counts: Sequence[int]) -> None:
        """The same with ``send_counts[i]`` elements to rank i and ``recv_counts[i]`` from it."""
        send, recv, size = buffer_of(send), to_write(recv, "what is received into"), self.size
        if send.dtype != recv.dtype:
            raise TypeError(f"{send.dtype.name} is sent and {recv.dtype.name} received")
        lists = []
        for counts, buffer in ((send_counts, send), (recv_counts, recv)):
            if len(counts) != size or min(counts) < 0:
                raise ValueError(f"{list(counts)} is not one count for each of {size} ranks")
            if sum(counts) > buffer.count:
                raise ValueError(f"{sum(counts)} elements of a buffer of {buffer.count}")
            lists.append((ctypes.c_size_t * size)(*counts))
        arguments = (send.address, lists[0], recv.address, lists[1], send.dtype, self.handle, None)
        issue("onecclAllToAllV", *arguments, keep=(send, recv, lists))

    def send(self, buffer: Any, peer: int) -> None:
        """To the rank ``peer``, which receives as much."""
        buffer = buffer_of(buffer)
        issue("onecclSend", buffer.address, buffer.count, buffer.dtype, peer, self.handle, None, keep=(buffer,))

    def recv(self, buffer: Any, peer: int) -> None:
        """From the rank ``peer``, which sends as much."""
        buffer = to_write(buffer, "what is received into")
        issue("onecclRecv", buffer.address, buffer.count, buffer.dtype, peer, self.handle, None, keep=(buffer,))

    def barrier(self) -> None:
        """Returns when all ranks have called it; not for groups."""
        if is_open():
            raise ValueError("a barrier in a group would wait for nothing")
        self.all_reduce((ctypes.c_float * 1)())

    @contextlib.contextmanager
    def premultiplied_sum(self, factor: float, dtype: DataType) -> Iterator[int]:
        """A reduction for calls within: a sum of elements that are multiplied by this rank's ``factor`` first."""
        scalar = _scalar(factor, DataType(dtype))
        number = ctypes.c_int()
        arguments = (ctypes.byref(number), ctypes.addressof(scalar), dtype, _HOST_SCALAR, self.handle)
        call("onecclRedOpCreatePreMulSum", *arguments)
        try:
            yield number.value
        finally:
            call("onecclRedOpDestroy", number.value, self.handle)

    # On streams, with events.

    def stream(self, queue: int = 0) -> Stream:
        """A stream on one of the device's compute queues."""
        return Stream(self, queue)

    def handles(self) -> tuple[int, int, int]:
        """Level Zero's driver, context and device, for lists and events of one's own."""
        places = [ctypes.c_void_p() for _ in range(3)]
        call("cclxCommHandles", self.handle, *(ctypes.byref(place) for place in places))
        driver, context, device = (int(place.value or 0) for place in places)
        return driver, context, device

    def all_reduce_after(
        self,
        send: Any,
        recv: Any = None,
        *,
        stream: Stream,
        op: int = ReduceOp.SUM,
        wait: Iterable[Event] = (),
        signal: Event | None = None,
    ) -> None:
        """An all-reduce of device memory that is appended to ``stream``: it begins after the events of ``wait`` and signals
        ``signal`` as its last act."""
        send, recv = _pair(send, recv)
        _same(send, recv)
        for buffer in (send, recv):
            if not buffer.on_device:
                raise ValueError(
                    "a call on a stream takes memory of the device (cclx.device_memory, Buffer(on_device=True))"
                )
        wait = tuple(wait)
        count, events = event_handles(wait)
        arguments = (send.address, recv.address, send.count, send.dtype, _op(op, send), self.handle, stream.handle)
        after = (count, events, one_handle(signal))
        issue_on(stream, "cclxAllReduceAfter", *arguments, *after, keep=(send, recv, wait, signal))

    def prepare_mhc(self) -> None:
        """Makes the device ready for mHC boundaries, once on each rank."""
        call("cclxMhcPrepare", self.handle)

    def mhc(self, params: MhcParams, stream: Stream, wait: Iterable[Event] = (), signal: Event | None = None) -> None:
        """Appends an mHC boundary, without a reduction."""
        self._mhc("cclxMhc", params, stream, wait, signal)

    def all_reduce_mhc(
        self, params: MhcParams, stream: Stream, wait: Iterable[Event] = (), signal: Event | None = None
    ) -> None:
        """Appends a sum of x over all ranks and the boundary after it."""
        self._mhc("cclxAllReduceMhc", params, stream, wait, signal)

    def _mhc(self, name: str, params: MhcParams, stream: Stream, wait: Iterable[Event], signal: Event | None) -> None:
        struct, kept = params.to_struct()
        wait = tuple(wait)
        count, events = event_handles(wait)
        arguments = (ctypes.byref(struct), self.handle, stream.handle, count, events, one_handle(signal))
        issue_on(stream, name, *arguments, keep=(kept, wait, signal))

    # Life.

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """A communicator of the ranks that give the same color, ordered by key; None for a rank without color."""
        place = ctypes.c_void_p()
        number = _NO_COLOR if color is None else color
        issue("onecclCommSplit", self.handle, number, key, ctypes.byref(place), None, keep=(place,))
        if color is None:
            return None
        part = Communicator.__new__(Communicator)
        part._adopt(place)
        return part

    def check(self) -> None:
        """Raises if a call on this communicator has failed, whenever that was."""
        call("onecclCommGetAsyncError", self.handle, told_of=self.handle)

    def finalize(self) -> None:
        """Waits for the calls of other threads and takes no more."""
        call("onecclCommFinalize", self.handle)

    def abort(self) -> None:
        """Ends calls in flight, here and on the other ranks; from any thread."""
        call("onecclCommAbort", self.handle)

    def destroy(self) -> None:
        """Ends the communicator; again it does nothing."""
        if self._end.detach() is None:
            return
        handle, self._place = self._place.value, ctypes.c_void_p()
        if handle:
            call("onecclCommDestroy", handle)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def _pieces(self, whole: Buffer, piece: Buffer) -> None:
        size = self.size
        if whole.dtype != piece.dtype or whole.count != piece.count * size:
            raise ValueError(
                f"{whole.count} elements of {whole.dtype.name} are not {size} pieces of {piece.count} of {piece.dtype.name}"
            )


def _leave(place: ctypes.c_void_p) -> None:
    """What somebody else made is theirs to end."""


def _destroy(place: ctypes.c_void_p) -> None:
    if place.value:
        with contextlib.suppress(InvalidUsage):
            call("onecclCommDestroy", place.value)


def _config(max_work_groups: int) -> ConfigStruct:
    if not 0 < max_work_groups < 2**31:
        raise ValueError(f"max_work_groups={max_work_groups} is not a number of work-groups")
    undefined = _UNDEFINED
    size = ctypes.sizeof(ConfigStruct)
    magic, number = 0xCAFEBEEF, 20220200
    return ConfigStruct(size, magic, number, undefined, undefined, undefined, max_work_groups, None, undefined, undefined, 0)


def _pair(send: Any, recv: Any) -> tuple[Buffer, Buffer]:
    if recv is None:
        both = to_write(send, "what is reduced in place")
        return both, both
    return buffer_of(send), to_write(recv, "what is received into")


def _same(send: Buffer, recv: Buffer) -> None:
    if (send.count, send.dtype) != (recv.count, recv.dtype):
        raise ValueError(
            f"{send.count} elements of {send.dtype.name} are sent and {recv.count} of {recv.dtype.name} received"
        )


def _op(op: int, buffer: Buffer) -> int:
    """The reduction; of truth values a sum is "any" and a product "all", as torch has it."""
    try:
        op = operator.index(op)
    except TypeError:
        raise TypeError(f"a reduction is one of cclx.ReduceOp, not {op!r}") from None
    if not buffer.truth:
        return op
    of_truth = {
        ReduceOp.SUM: ReduceOp.MAX,
        ReduceOp.PROD: ReduceOp.MIN,
        ReduceOp.MAX: ReduceOp.MAX,
        ReduceOp.MIN: ReduceOp.MIN,
    }
    if op not in of_truth:
        raise ValueError("truth values have no such reduction")
    return int(of_truth[ReduceOp(op)])


#: The scalar of bfloat16 is a float, as oneCCL's callers pass it; binary16 has no C type and goes by its bits.
_SCALARS: dict[DataType, Any] = {
    DataType.INT8: ctypes.c_int8,
    DataType.UINT8: ctypes.c_uint8,
    DataType.INT32: ctypes.c_int32,
    DataType.UINT32: ctypes.c_uint32,
    DataType.INT64: ctypes.c_int64,
    DataType.UINT64: ctypes.c_uint64,
    DataType.FLOAT32: ctypes.c_float,
    DataType.FLOAT64: ctypes.c_double,
    DataType.BFLOAT16: ctypes.c_float,
}


def _scalar(factor: float, dtype: DataType) -> Any:
    if dtype == DataType.FLOAT16:
        import struct

        return ctypes.c_uint16(int.from_bytes(struct.pack("<e", factor), "little"))
    kind = _SCALARS[dtype]
    if dtype in (DataType.FLOAT32, DataType.FLOAT64, DataType.BFLOAT16):
        return kind(factor)
    scalar = kind(int(factor))
    if scalar.value != factor:
        raise ValueError(f"{factor} is no {dtype.name}")
    return scalar
