#!/usr/bin/env python3
"""All-reduces on NVIDIA GPUs beside NCCL and PyTorch's symmetric-memory kernels, one rank a GPU; and the boundaries of a
token of a model with hyper-connections beside torch.compile. Wants PyTorch with CUDA. All contestants run in turn for each
size, in each pass another one first; what waits its turn sleeps and has nothing on the GPUs.

    beside_nccl.py --ranks 2 --ours .../back_to_back --json FILE [--sizes 8192,65536] [--passes 3] [--skip-token]
"""

import argparse
import json
import os
import statistics
import subprocess
import time

import torch
import torch.distributed as dist

KIB, MIB = 1 << 10, 1 << 20
SIZES = [8 * KIB, 64 * KIB, 512 * KIB, 4 * MIB, 64 * MIB, 256 * MIB]
LAYERS, STREAMS, HIDDEN = 43, 4, 4096
BOUNDARIES, CALLS = 2 * LAYERS - 1, 2 * LAYERS + 1


def repeats(size):
    """Calls in a graph, and replays."""
    return (100, 20) if size <= 512 * KIB else (20, 10) if size <= 16 * MIB else (5, 6)


def timed(run, calls, replays, group):
    """The median of some turns, each by itself: the same clock as `back_to_back` has."""
    samples = []
    for turn in range(replays + 3):
        torch.cuda.synchronize()
        if group is not None:
            dist.barrier(group)
        begun = time.perf_counter()
        run()
        torch.cuda.synchronize()
        if turn >= 3:
            samples.append((time.perf_counter() - begun) * 1e6 / calls)
    return statistics.median(samples)


def recorded(run):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


class Nccl:
    """dist.all_reduce, in place."""

    def __init__(self, size):
        self.x = torch.ones(size // 2, dtype=torch.bfloat16, device="cuda")

    def call(self):
        dist.all_reduce(self.x)

    def check(self, ranks):
        self.x.fill_(dist.get_rank() + 1)
        self.call()
        return bool((self.x == ranks * (ranks + 1) / 2).all())


class Symmetric:
    """One of PyTorch's kernels on symmetric memory."""

    # One allocation for all sizes: each is exchanged between the ranks.
    memory = None

    def __init__(self, size, two_shot):
        import torch.distributed._symmetric_memory as symm

        if Symmetric.memory is None:
            Symmetric.memory = symm.empty(SIZES[-1] // 2, dtype=torch.bfloat16, device="cuda")
            symm.rendezvous(Symmetric.memory, dist.group.WORLD.group_name)
        self.x, self.two_shot = Symmetric.memory[: size // 2], two_shot
        self.x.fill_(0)

    def call(self):
        name = dist.group.WORLD.group_name
        if self.two_shot:
            return torch.ops.symm_mem.two_shot_all_reduce_(self.x, "sum", name)
        return torch.ops.symm_mem.one_shot_all_reduce(self.x, "sum", name)

    def check(self, ranks):
        self.x.fill_(dist.get_rank() + 1)
        return bool((self.call() == ranks * (ranks + 1) / 2).all())


class Torch:
    """What runs in these processes."""

    def __init__(self, contestant, mode, size, group):
        self.calls, self.replays = repeats(size)
        self.group, self.contestant = group, contestant
        self.right = contestant.check(dist.get_world_size())

        def all_calls():
            for _ in range(self.calls):
                contestant.call()

        all_calls()
        self.graph = recorded(all_calls) if mode == "graph" else None
        self.run = self.graph.replay if self.graph else all_calls

    def measure(self):
        return timed(self.run, self.calls, self.replays, self.group)


class Ours:
    """The ranks of `back_to_back serve`, which this process tells what to do."""

    def __init__(self, program, ranks, most):
        command = [program, str(ranks), "serve", str(most)]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.plans = {}

    def measure(self, mode, place, size):
        calls, replays = repeats(size)
        self.child.stdin.write(f"{mode} bfloat16 {place} {size} {calls} {replays}\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError("our ranks ended")
        said = json.loads(line)
        self.plans[f"{place} {size}"] = said["plan"]
        if not said["right"]:
            raise RuntimeError(f"a wrong result: {line}")
        return said["median_us"]

    def end(self):
        self.child.stdin.close()
        self.child.wait(timeout=60)


def all_reduces(options, rank, group):
    ours = Ours(options.ours, options.ranks, max(options.sizes)) if rank == 0 else None
    results = []
    for mode in ["graph", "eager"]:
        for size in options.sizes:
            peers, failed = {}, {}
            makers = {"nccl": lambda: Nccl(size), "two-shot": lambda: Symmetric(size, True)}
            if size <= 16 * MIB:
                makers["one-shot"] = lambda: Symmetric(size, False)
            for name, make in makers.items():
                try:
                    peers[name] = Torch(make(), mode, size, group)
                except Exception as error:  # It is said in the results that it has none, and why.
                    failed[name] = str(error).splitlines()[0]
            names = ["ours", "ours, registered", *peers]
            passes = []
            for number in range(options.passes):
                seen = {}
                for at in range(len(names)):
                    name = names[(at + number) % len(names)]
                    dist.barrier(group)
                    if name in peers:
                        seen[name] = peers[name].measure()
                    elif rank == 0:
                        place = "registered" if "registered" in name else "plain"
                        seen[name] = ours.measure(mode, place, size)
                    dist.barrier(group)
                passes.append(seen)
            if rank == 0:
                line = {"mode": mode, "bytes": size, "passes": passes, "absent": failed}
                line["right"] = {name: peer.right for name, peer in peers.items()}
                results.append(line)
                shown = {name: round(statistics.median(p[name] for p in passes), 2) for name in names}
                print(mode, size, shown, failed, flush=True)
            del peers
            torch.cuda.empty_cache()
    if ours is not None:
        plans = ours.plans
        ours.end()
        return {"all_reduce": results, "plans": plans}
    return {}


def boundary(x, residual, post, comb, weights, scale, base):
    """Post and pre of one boundary; docs/numerics.md has the formula. The types are the ones that our kernels take."""
    old = residual.float()
    new = post.unsqueeze(-1) * x.float().unsqueeze(1) + torch.einsum("mio,mid->mod", comb, old)
    rounded = new.to(torch.bfloat16)
    flat = rounded.float().flatten(1)
    mixes = (flat @ weights.t()) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + 1e-6)
    hc = STREAMS
    pre = torch.sigmoid(mixes[:, :hc] * scale[0] + base[:hc]) + 1e-6
    next_post = 2 * torch.sigmoid(mixes[:, hc : 2 * hc] * scale[1] + base[hc : 2 * hc])
    c = (mixes[:, 2 * hc :] * scale[2] + base[2 * hc :]).view(-1, hc, hc)
    c = torch.softmax(c, -1) + 1e-6
    c = c / (c.sum(-2, keepdim=True) + 1e-6)
    for _ in range(19):
        c = c / (c.sum(-1, keepdim=True) + 1e-6)
        c = c / (c.sum(-2, keepdim=True) + 1e-6)
    y = torch.einsum("mi,mid->md", pre, rounded.float()).to(torch.bfloat16)
    return y, rounded, next_post, c


def token(rows, group, ranks):
    """A token's boundaries, each with weights of its own, with and without the all-reduces before them."""
    torch.manual_seed(1)
    make = lambda *shape: torch.randn(*shape, device="cuda")
    mixes = STREAMS * STREAMS + 2 * STREAMS
    weights = [make(mixes, STREAMS * HIDDEN) * 0.01 for _ in range(BOUNDARIES)]
    scale, base = make(3), make(mixes)
    x, residual = make(rows, HIDDEN).bfloat16(), make(rows, STREAMS, HIDDEN).bfloat16()
    post, comb = make(rows, STREAMS).sigmoid(), make(rows, STREAMS, STREAMS).softmax(-1)
    compiled = torch.compile(boundary, dynamic=False)

    def run(reduces, bounds):
        y, state = x.clone(), (residual, post, comb)
        for number in range(CALLS):
            if reduces:
                dist.all_reduce(y)
            if bounds and number < BOUNDARIES:
                y, *state = compiled(y, *state, weights[number], scale, base)
        return y

    said = {"rows": rows}
    kinds = {"boundaries": (False, True)}
    if ranks > 1:
        kinds |= {"token": (True, True), "all_reduces": (True, False)}
    with torch.no_grad():
        for name, (reduces, bounds) in kinds.items():
            run(reduces, bounds)
            graph = recorded(lambda: run(reduces, bounds))
            said[name + "_us"] = timed(graph.replay, 1, 20, group)
    said["boundary_us"] = said["boundaries_us"] / BOUNDARIES
    return said


def rank(number, options):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    torch.cuda.set_device(number)
    group, said = None, {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "ranks": options.ranks}
    if options.ranks > 1:
        device = torch.device("cuda", number)
        dist.init_process_group("nccl", rank=number, world_size=options.ranks, device_id=device)
        said["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        # Meets on the processors, and leaves the GPUs alone.
        group = dist.new_group(backend="gloo")
        if options.ours:
            said |= all_reduces(options, number, group)
    if number == 0:
        options.json_file(said)
    if not options.skip_token:
        said["tokens"] = [token(rows, group, options.ranks) for rows in options.rows]
        if number == 0:
            print(said["tokens"], flush=True)
            options.json_file(said)
    if options.ranks > 1:
        dist.destroy_process_group()


class Options(argparse.Namespace):
    def json_file(self, said):
        with open(self.json, "w") as file:
            json.dump(said, file, indent=1)


def main():
    numbers = lambda text: [int(word) for word in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--ours", help="the program back_to_back; without it no all-reduces")
    parser.add_argument("--json", required=True)
    parser.add_argument("--sizes", type=numbers, default=SIZES)
    parser.add_argument("--rows", type=numbers, default=[1])
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--port", type=int, default=29517)
    parser.add_argument("--skip-token", action="store_true")
    options = parser.parse_args(namespace=Options())
    if options.ranks == 1:
        rank(0, options)
    else:
        torch.multiprocessing.spawn(rank, (options,), nprocs=options.ranks)


if __name__ == "__main__":
    main()
