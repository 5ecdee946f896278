#!/usr/bin/env python3
"""Tables, and a picture if asked for, of what beside_nccl.py has measured: beside_nccl_table.py RESULTS.json [PICTURE.svg]"""

import json
import statistics
import sys

PEERS = ["nccl", "one-shot", "two-shot"]
OURS = ["ours", "ours, registered"]


def named(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def shown(value):
    return "-" if value is None else f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def median(line, name):
    values = [one[name] for one in line["passes"] if name in one]
    return statistics.median(values) if values else None


def ratio(line, name, others):
    """The median over the passes of ours over the best of some others, each in the same pass."""
    values = []
    for one in line["passes"]:
        best = min((one[other] for other in others if other in one), default=None)
        if best is not None and name in one:
            values.append(one[name] / best)
    return statistics.median(values) if values else None


def table(said, mode):
    names = OURS + PEERS
    lines = [line for line in said["all_reduce"] if line["mode"] == mode]
    print(f"| {mode} | " + " | ".join(names) + " | ours / NCCL | ours / best symmetric | GB/s: ours | registered | NCCL |")
    print("|--:" * (len(names) + 6) + "|")
    factor = 2 * (said["ranks"] - 1) / said["ranks"]
    for line in lines:
        times = [median(line, name) for name in names]
        both = [min((r for r in (ratio(line, name, to) for name in OURS) if r), default=None)
                for to in (["nccl"], ["one-shot", "two-shot"])]
        rates = [None if t is None else line["bytes"] * factor / t / 1e3 for t in (times[0], times[1], times[2])]
        print(f"| {named(line['bytes'])} | " + " | ".join(shown(value) for value in times + both + rates) + " |")
    print()


def picture(said, path):
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    for axis, mode in zip(axes, ["graph", "eager"]):
        lines = [line for line in said["all_reduce"] if line["mode"] == mode]
        for name in OURS + PEERS:
            points = [(line["bytes"], median(line, name)) for line in lines]
            points = [point for point in points if point[1] is not None]
            if points:
                axis.plot(*zip(*points), marker="o", label=name, lw=2 if name in OURS else 1)
        axis.set(xscale="log", yscale="log", xlabel="bytes", title=mode)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("us a call")
    axes[0].legend()
    figure.suptitle(f"bf16 all-reduce, {said['ranks']} x {said['gpu']}, NCCL {said['nccl']}, torch {said['torch']}")
    figure.tight_layout()
    figure.savefig(path)


def main():
    with open(sys.argv[1]) as file:
        said = json.load(file)
    print(f"{said['ranks']} x {said['gpu']}, NCCL {said['nccl']}, torch {said['torch']}\n")
    for mode in ["graph", "eager"]:
        table(said, mode)
    for tokens in said.get("tokens", []):
        print({name: round(value, 1) for name, value in tokens.items()})
    if len(sys.argv) > 2:
        picture(said, sys.argv[2])


if __name__ == "__main__":
    main()
