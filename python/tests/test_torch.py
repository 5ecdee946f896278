"""What torch's process group issues, through oneCCL's C API, against gloo on the same tensors, in processes that are started
and configured as vLLM's workers are. Bits are compared: two ranks make one rounding, and more ranks have integers."""

from __future__ import annotations

import os
import sys
import tempfile
import unittest

import ranks

try:
    import torch
    import torch.distributed as dist

    import xccl
except ImportError:
    # Its bed has it; a run without that says what it left out.
    torch = None  # type: ignore[assignment]

LIBRARY = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "release", "libcclx.so")
WIDTHS = (704, 352, 768, 384, 2112, 1056)
#: A report of wrong tokens with two GPUs had these.
ENVIRONMENT = {
    "ZE_AFFINITY_MASK": "0,1",
    "CCL_TOPO_P2P_ACCESS": "0",
    "CCL_ATL_TRANSPORT": "ofi",
    "CCL_ATL_SHM": "1",
    "FI_PROVIDER": "shm",
    "CCL_WORKER_COUNT": "2",
    "CCL_ENABLE_SYCL_KERNELS": "0",
}


def content(shape: tuple[int, ...], dtype: torch.dtype, rank: int, size: int, salt: int) -> torch.Tensor:
    """Elements that depend on rank and position; of floats with two ranks, ones whose sums round."""
    generator = torch.Generator().manual_seed(1000 * salt + rank)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_floating_point and size == 2:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    low = 0 if dtype == torch.uint8 else -3
    return torch.randint(low, 4, shape, generator=generator).to(dtype)


class Both:
    """The same calls by the C API and by gloo."""

    def __init__(self, rank: int, size: int, folder: str) -> None:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{folder}/gloo", rank=rank, world_size=size)
        store = dist.FileStore(f"{folder}/ids", size)
        self.rank, self.size, self.salt, self.compared = rank, size, 0, 0
        self.group = xccl.ProcessGroup(LIBRARY, store, rank, size, rank)

    def made(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        self.salt += 1
        return content(shape, dtype, self.rank, self.size, self.salt)

    def same(self, ours: torch.Tensor, theirs: torch.Tensor, what: str) -> None:
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, what
        equal = torch.equal(ours.contiguous().view(torch.uint8), theirs.contiguous().view(torch.uint8))
        if not equal:
            wrong = (ours != theirs).flatten().nonzero()
            raise AssertionError(
                f"{what}: {len(wrong)} of {ours.numel()} elements differ, the first at {wrong[:1].tolist()}"
            )
        self.compared += 1


def all_reduces(both: Both) -> None:
    ops = [(dist.ReduceOp.SUM, xccl.SUM), (dist.ReduceOp.PRODUCT, xccl.PROD), (dist.ReduceOp.MAX, xccl.MAX)]
    ops.append((dist.ReduceOp.MIN, xccl.MIN))
    types = [torch.int8, torch.uint8, torch.int32, torch.int64]
    types += [torch.float16, torch.float32, torch.float64, torch.bfloat16]
    for dtype in types:
        for theirs, ours in ops:
            data = both.made((3, 7, 13), dtype)
            expected = data.clone()
            dist.all_reduce(expected, theirs)
            both.group.all_reduce(data, ours)
            both.same(data, expected, f"all_reduce {dtype} {theirs}")
    for theirs, ours in ((dist.ReduceOp.MAX, xccl.SUM), (dist.ReduceOp.MIN, xccl.PROD)):
        data = both.made((501,), torch.bool)
        expected = data.to(torch.uint8)
        dist.all_reduce(expected, theirs)
        both.group.all_reduce(data, ours)
        both.same(data, expected.bool(), f"all_reduce bool {ours}")
    data = both.made((1000,), torch.float32)
    expected = data.mul(both.rank + 2)
    dist.all_reduce(expected)
    both.group.premultiplied(data, both.rank + 2)
    both.same(data, expected, "premultiplied")
    for count in range(1, 131):
        # As integers, the sum's average is exact where the number of ranks is a power of two.
        data = both.made((count,), torch.int32).float()
        expected = data.clone()
        dist.all_reduce(expected)
        both.group.all_reduce(data, xccl.AVG)
        both.same(data, expected / both.size, f"average of {count}")
    # That the comparison can fail.
    data = both.made((100,), torch.float32)
    expected = data.clone()
    dist.all_reduce(expected)
    both.group.all_reduce(data, xccl.MAX)
    try:
        both.same(data, expected, "another reduction")
    except AssertionError:
        pass
    else:
        raise AssertionError("a maximum was taken for a sum")
    both.group.barrier()


def hidden_states(both: Both) -> None:
    """As a model with tensor parallelism has them: back to back, in place, then gathered for logits."""
    for width in WIDTHS:
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            held = [both.made((tokens, width), dtype) for tokens in (1, 2, 17)]
            expected = [data.clone() for data in held]
            for data in expected:
                dist.all_reduce(data)
            for data in held:
                both.group.all_reduce(data)
            for data, wanted in zip(held, expected):
                both.same(data, wanted, f"hidden state {tuple(data.shape)} {dtype}")
        piece = both.made((5, width), torch.bfloat16)
        ours = torch.empty((both.size * 5, width), dtype=piece.dtype)
        theirs = [torch.empty_like(piece) for _ in range(both.size)]
        dist.all_gather(theirs, piece)
        both.group.all_gather(ours, piece)
        both.same(ours, torch.cat(theirs), f"all_gather {width}")
        whole = both.made((both.size * 3, width), torch.bfloat16)
        total = whole.clone()
        dist.all_reduce(total)
        ours = torch.empty((3, width), dtype=whole.dtype)
        both.group.reduce_scatter(ours, whole)
        both.same(ours, total[both.rank * 3 :][:3], f"reduce_scatter {width}")
    bytes_only = both.made((9, 352), torch.uint8).view(torch.float8_e4m3fn)
    ours = torch.empty((both.size * 9, 352), dtype=torch.float8_e4m3fn)
    theirs = [torch.empty_like(bytes_only.view(torch.uint8)) for _ in range(both.size)]
    dist.all_gather(theirs, bytes_only.view(torch.uint8))
    both.group.all_gather(ours, bytes_only)
    both.same(ours.view(torch.uint8), torch.cat(theirs), "all_gather of fp8")


def experts(both: Both) -> None:
    """As expert parallelism has them: pieces of unequal size, some of them empty."""
    for width, tokens in ((704, (3, 0, 5, 1)), (2112, (1, 4, 0, 0)), (384, (17, 16, 2, 9))):
        tokens = tokens[: both.size]
        for dtype in (torch.bfloat16, torch.float32, torch.int64):
            mine = both.made((tokens[both.rank], width), dtype)
            ours = torch.empty((sum(tokens), width), dtype=dtype)
            theirs = torch.empty_like(ours)
            for root, piece in enumerate(theirs.split(tokens)):
                if root == both.rank:
                    piece.copy_(mine)
                if piece.numel():
                    dist.broadcast(piece, root)
            both.group.all_gather_uneven(list(ours.split(tokens)), mine)
            both.same(ours, theirs, f"uneven all_gather {width} {dtype}")

            whole = both.made((sum(tokens), width), dtype)
            total = whole.clone()
            dist.all_reduce(total)
            ours = torch.empty((tokens[both.rank], width), dtype=dtype)
            both.group.reduce_scatter_uneven(ours, list(whole.split(tokens)))
            both.same(ours, total.split(tokens)[both.rank], f"uneven reduce_scatter {width} {dtype}")

        # From rank a to rank b go (a + 2 b) mod 3 rows.
        to = [(both.rank + 2 * peer) % 3 for peer in range(both.size)]
        come = [(peer + 2 * both.rank) % 3 for peer in range(both.size)]
        sent = both.made((sum(to), width), torch.bfloat16)
        ours, theirs = (torch.empty((sum(come), width), dtype=torch.bfloat16) for _ in range(2))
        dist.all_to_all_single(theirs, sent, come, to)
        both.group.all_to_all_uneven(list(ours.split(come)), list(sent.split(to)))
        both.same(ours, theirs, f"uneven all_to_all {width}")
        sent = both.made((both.size * 2, width), torch.bfloat16)
        ours, theirs = torch.empty_like(sent), torch.empty_like(sent)
        dist.all_to_all_single(theirs, sent)
        both.group.all_to_all(ours, sent)
        both.same(ours, theirs, f"all_to_all {width}")


def roots(both: Both) -> None:
    for root in range(both.size):
        for dtype in (torch.bfloat16, torch.int32):
            data = both.made((6, 352), dtype)
            ours, theirs = data.clone(), data.clone()
            dist.broadcast(theirs, root)
            both.group.broadcast(ours, root)
            both.same(ours, theirs, f"broadcast from {root}")
            ours, theirs = data.clone(), data.clone()
            dist.all_reduce(theirs)
            both.group.reduce(ours, root)
            both.same(ours, theirs if both.rank == root else data, f"reduce to {root}")
            here = both.rank == root
            ours_all = [torch.empty_like(data) for _ in range(both.size)] if here else None
            theirs_all = [torch.empty_like(data) for _ in range(both.size)] if here else None
            dist.gather(data, theirs_all, root)
            both.group.gather(ours_all, data, root)
            for ours, theirs in zip(ours_all or [], theirs_all or []):
                both.same(ours, theirs, f"gather to {root}")
            pieces = [both.made((2, 384), dtype) for _ in range(both.size)]
            ours, theirs = torch.empty_like(pieces[0]), torch.empty_like(pieces[0])
            dist.scatter(theirs, pieces if here else None, root)
            both.group.scatter(ours, pieces if here else None, root)
            both.same(ours, theirs, f"scatter from {root}")


def messages(both: Both) -> None:
    """Pipeline parallelism: single messages, on communicators of two ranks, or of one."""
    for width in WIDTHS[:2]:
        for step in range(1, both.size):
            data = both.made((4, width), torch.bfloat16)
            ours, theirs = torch.empty_like(data), torch.empty_like(data)
            to, come = (both.rank + step) % both.size, (both.rank - step) % both.size
            work = dist.isend(data, to)
            dist.recv(theirs, come)
            work.wait()
            # Whoever has the lower number of a pair goes first, with each other rank in turn.
            for low in range(both.size):
                high = (low + step) % both.size
                if both.rank == low:
                    both.group.send(data, high)
                if both.rank == high:
                    both.group.recv(ours, low)
            both.same(ours, theirs, f"message to the rank {step} further")
        data = both.made((4, width), torch.bfloat16)
        ours = torch.empty_like(data)
        both.group.exchange_with_self(ours, data)
        both.same(ours, data, "message to itself")


def everything(rank: int, size: int, folder: str) -> int:
    both = Both(rank, size, folder)
    for part in (all_reduces, hidden_states, experts, roots, messages):
        part(both)
    both.group.barrier()
    dist.destroy_process_group()
    return both.compared


@unittest.skipIf(torch is None, "no torch")
class Torch(unittest.TestCase):
    def run_with(self, size: int, environment: dict[str, str]) -> None:
        before = dict(os.environ)
        os.environ.update(environment, LOCAL_WORLD_SIZE=str(size), OMP_NUM_THREADS="1", CCLX_ON_ERROR="abort")
        try:
            with tempfile.TemporaryDirectory() as folder:
                compared = ranks.run(everything, size, folder, limit=200)
        finally:
            os.environ.clear()
            os.environ.update(before)
        print(f"{size} ranks: {min(compared)} results and more on each are gloo's", file=sys.stderr)
        self.assertGreater(min(compared), 270)

    def test_two_ranks_in_the_environment_of_a_report(self) -> None:
        self.run_with(2, ENVIRONMENT)

    def test_four_ranks(self) -> None:
        self.run_with(4, {})


if __name__ == "__main__":
    unittest.main()
