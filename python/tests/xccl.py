"""The calls that torch's process group for Intel GPUs makes to oneCCL's C API, made on host tensors, by ctypes."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int, c_size_t, c_void_p

import torch

ID_BYTES = 4096
TYPES = {
    torch.int8: 0,
    torch.uint8: 1,
    torch.bool: 1,
    torch.int32: 2,
    torch.int64: 4,
    torch.float16: 6,
    torch.float32: 7,
    torch.float64: 8,
    torch.bfloat16: 9,
    torch.float8_e4m3fn: 1,
}
SUM, PROD, MAX, MIN, AVG = range(5)


class UniqueId(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char * ID_BYTES)]


def declare(path: str) -> ctypes.CDLL:
    """The library, with the functions that torch calls."""
    library = ctypes.CDLL(path)
    reduces = [c_void_p, c_void_p, c_size_t, c_int, c_int]
    moves = [c_void_p, c_void_p, c_size_t, c_int]
    for name, arguments in {
        "GetVersion": [POINTER(c_int)],
        "GetUniqueId": [POINTER(UniqueId)],
        "SetDevice": [ctypes.c_uint32],
        "CommInitRank": [POINTER(c_void_p), c_size_t, UniqueId, c_int],
        "CommCount": [c_void_p, POINTER(c_int)],
        "CommUserRank": [c_void_p, POINTER(c_int)],
        "GroupStart": [],
        "GroupEnd": [],
        "AllReduce": [*reduces, c_void_p, c_void_p],
        "Reduce": [*reduces, c_int, c_void_p, c_void_p],
        "Broadcast": [*moves, c_int, c_void_p, c_void_p],
        "ReduceScatter": [*reduces, c_void_p, c_void_p],
        "AllGather": [*moves, c_void_p, c_void_p],
        "AllToAll": [*moves, c_void_p, c_void_p],
        "Send": [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
        "Recv": [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
        "RedOpCreatePreMulSum": [POINTER(c_int), c_void_p, c_int, c_int, c_void_p],
        "RedOpDestroy": [c_int, c_void_p],
    }.items():
        function = getattr(library, "oneccl" + name)
        function.argtypes, function.restype = arguments, c_int
    return library


class ProcessGroup:
    """Collectives in terms of oneCCL's calls. The codes are looked at, which torch does not do."""

    def __init__(self, path: str, store: torch.distributed.Store, rank: int, size: int, device: int) -> None:
        self.library, self.store, self.rank, self.size, self.device = declare(path), store, rank, size, device
        number = c_int()
        self.call("GetVersion", ctypes.byref(number))
        assert number.value >= 20220000, "torch would refuse to record graphs"
        self.depth = 0
        self.pairs: dict[tuple[int, int], tuple[c_void_p, int]] = {}
        self.comm = self.communicator("world", rank, size)

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self.library, "oneccl" + name)(*arguments)
        assert code == 0, f"oneccl{name}: {code}"

    def communicator(self, key: str, rank: int, size: int) -> c_void_p:
        """The id goes through the store and then by value; the groups that are open are left for it."""
        unique_id = UniqueId()
        if rank == 0:
            self.call("GetUniqueId", ctypes.byref(unique_id))
            self.store.set(key, ctypes.string_at(ctypes.byref(unique_id), ID_BYTES))
        else:
            data = self.store.get(key)
            assert len(data) == ID_BYTES
            unique_id = UniqueId.from_buffer_copy(data)
        depth = self.depth
        for _ in range(depth):
            self.call("GroupEnd")
        self.call("SetDevice", self.device)
        comm, number = c_void_p(), c_int(-1)
        self.call("CommInitRank", ctypes.byref(comm), size, unique_id, rank)
        for _ in range(depth):
            self.call("GroupStart")
        self.call("CommCount", comm, ctypes.byref(number))
        assert number.value == size
        self.call("CommUserRank", comm, ctypes.byref(number))
        assert number.value == rank
        return comm

    def start(self) -> None:
        self.call("GroupStart")
        self.depth += 1

    def end(self) -> None:
        self.call("GroupEnd")
        self.depth -= 1

    def op(self, tensor: torch.Tensor, op: int) -> int:
        return {SUM: MAX, PROD: MIN}.get(op, op) if tensor.dtype == torch.bool else op

    def all_reduce(self, tensor: torch.Tensor, op: int = SUM) -> None:
        at, kind = tensor.data_ptr(), TYPES[tensor.dtype]
        self.call("AllReduce", at, at, tensor.numel(), kind, self.op(tensor, op), self.comm, None)

    def premultiplied(self, tensor: torch.Tensor, factor: float) -> None:
        """torch multiplies by itself, then sums."""
        tensor.mul_(factor)
        self.all_reduce(tensor)

    def barrier(self) -> None:
        self.all_reduce(torch.zeros(1))

    def reduce(self, tensor: torch.Tensor, root: int, op: int = SUM, out: torch.Tensor | None = None) -> None:
        at, to = tensor.data_ptr(), (tensor if out is None else out).data_ptr()
        self.call("Reduce", at, to, tensor.numel(), TYPES[tensor.dtype], self.op(tensor, op), root, self.comm, None)

    def broadcast(self, tensor: torch.Tensor, root: int, out: torch.Tensor | None = None) -> None:
        at, to = tensor.data_ptr(), (tensor if out is None else out).data_ptr()
        self.call("Broadcast", at, to, tensor.numel(), TYPES[tensor.dtype], root, self.comm, None)

    def all_gather(self, out: torch.Tensor, tensor: torch.Tensor) -> None:
        kind = TYPES[tensor.dtype]
        self.call("AllGather", tensor.data_ptr(), out.data_ptr(), tensor.numel(), kind, self.comm, None)

    def reduce_scatter(self, out: torch.Tensor, tensor: torch.Tensor, op: int = SUM) -> None:
        kind, op = TYPES[tensor.dtype], self.op(tensor, op)
        self.call("ReduceScatter", tensor.data_ptr(), out.data_ptr(), out.numel(), kind, op, self.comm, None)

    def all_gather_uneven(self, outs: list[torch.Tensor], tensor: torch.Tensor) -> None:
        """A group of broadcasts, out of place on the root."""
        self.start()
        for root, out in enumerate(outs):
            self.broadcast(tensor if root == self.rank else out, root, out)
        self.end()

    def reduce_scatter_uneven(self, out: torch.Tensor, tensors: list[torch.Tensor], op: int = SUM) -> None:
        """A group of reduces, out of place on the root."""
        self.start()
        for root, tensor in enumerate(tensors):
            self.reduce(tensor, root, op, out if root == self.rank else tensor)
        self.end()

    def all_to_all(self, out: torch.Tensor, tensor: torch.Tensor) -> None:
        count, kind = tensor.numel() // self.size, TYPES[tensor.dtype]
        self.call("AllToAll", tensor.data_ptr(), out.data_ptr(), count, kind, self.comm, None)

    def _send(self, tensor: torch.Tensor, peer: int, comm: c_void_p | None = None) -> None:
        self.call("Send", tensor.data_ptr(), tensor.numel(), TYPES[tensor.dtype], peer, comm or self.comm, None)

    def _recv(self, tensor: torch.Tensor, peer: int, comm: c_void_p | None = None) -> None:
        self.call("Recv", tensor.data_ptr(), tensor.numel(), TYPES[tensor.dtype], peer, comm or self.comm, None)

    def all_to_all_uneven(self, outs: list[torch.Tensor], tensors: list[torch.Tensor]) -> None:
        """A group of sends and receives, to and from itself among them; what is empty is left out."""
        self.start()
        for peer in range(self.size):
            if tensors[peer].numel():
                self._send(tensors[peer], peer)
            if outs[peer].numel():
                self._recv(outs[peer], peer)
        self.end()

    def gather(self, outs: list[torch.Tensor] | None, tensor: torch.Tensor, root: int) -> None:
        self.start()
        if outs is None:
            self._send(tensor, root)
        else:
            for peer, out in enumerate(outs):
                if peer == root:
                    out.copy_(tensor)
                else:
                    self._recv(out, peer)
        self.end()

    def scatter(self, out: torch.Tensor, tensors: list[torch.Tensor] | None, root: int) -> None:
        self.start()
        if tensors is None:
            self._recv(out, root)
        else:
            for peer, tensor in enumerate(tensors):
                if peer == root:
                    out.copy_(tensor)
                else:
                    self._send(tensor, peer)
        self.end()

    def _pair(self, peer: int) -> tuple[c_void_p, int]:
        """Single messages have a communicator for each pair of ranks, and one of this rank alone for those to itself."""
        low, high = min(self.rank, peer), max(self.rank, peer)
        if (low, high) not in self.pairs:
            size, rank = (1, 0) if low == high else (2, int(self.rank == high))
            comm = self.communicator(f"{low}:{high}", rank, size)
            self.pairs[low, high] = (comm, 0 if size == 1 else 1 - rank)
        return self.pairs[low, high]

    def send(self, tensor: torch.Tensor, peer: int) -> None:
        comm, other = self._pair(peer)
        self._send(tensor, other, comm)

    def recv(self, tensor: torch.Tensor, peer: int) -> None:
        comm, other = self._pair(peer)
        self._recv(tensor, other, comm)

    def exchange_with_self(self, out: torch.Tensor, tensor: torch.Tensor) -> None:
        """A batch, in which the communicator is made while the group is open."""
        self.start()
        self.start()
        self.send(tensor, self.rank)
        self.end()
        self.recv(out, self.rank)
        self.end()
