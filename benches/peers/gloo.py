"""gloo through torch.distributed: one rank, led by the coordinator as those of contestant.h are."""

import ctypes
import os
import socket
import statistics
import sys
import time

name, max_bytes, rank, ranks, store, data = sys.argv[1:]
max_bytes, rank, ranks = int(max_bytes), int(rank), int(ranks)
cpus = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cpus[rank % len(cpus)]})
# One rank a core: no more threads than that.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402  (after the processor was chosen, for its threads to inherit)
import torch.distributed as dist  # noqa: E402

torch.set_num_threads(1)
TYPES = {"float32": (torch.float32, 0), "bfloat16": (torch.bfloat16, 1)}
data = ctypes.CDLL(data)
data.peers_fill.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint32]
data.peers_wrong.argtypes = data.peers_fill.argtypes
data.peers_wrong.restype = ctypes.c_size_t
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)

link = socket.socket(socket.AF_UNIX)
link.connect(os.environ["PEERS_SOCKET"])
words = link.makefile("rw")
words.write(f"hello {name} {rank} {os.getpid()}\n")
words.flush()

memory = torch.zeros(max_bytes, dtype=torch.uint8)
for line in words:
    if line.startswith("quit"):
        break
    _, _, dtype, count, warmup, calls, seed = line.split()
    (dtype, bf16), count, warmup, calls, seed = TYPES[dtype], int(count), int(warmup), int(calls), int(seed)
    tensor = memory[: count * dtype.itemsize].view(dtype)
    data.peers_fill(tensor.data_ptr(), bf16, count, rank, seed)
    for _ in range(warmup):
        dist.all_reduce(tensor)
    times = []
    begun = time.perf_counter_ns()
    for _ in range(calls):
        # In place, the only way that it offers.
        dist.all_reduce(tensor)
        now = time.perf_counter_ns()
        times.append(now - begun)
        begun = now
    data.peers_fill(tensor.data_ptr(), bf16, count, rank, seed + 1)
    dist.all_reduce(tensor)
    wrong = data.peers_wrong(tensor.data_ptr(), bf16, count, ranks, seed + 1)
    words.write(f"done {statistics.median_low(times)} {min(times)} {wrong}\n")
    words.flush()
dist.destroy_process_group()
