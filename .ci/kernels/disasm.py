#!/usr/bin/env python3
"""disasm.py FOLDER DEVICE KERNELS: judges what the graphics compiler made of so many kernels.

FOLDER holds the output of `ocloc disasm`. Prints a table row for each kernel; names each broken rule on stderr and then
exits 1.
"""

import os
import re
import sys

FLUSHES_UNLESS = 0x80  # bit of cr0: binary32 subnormals are kept
# Emulated binary64 with the widest lines, which these devices don't use (docs/limits.md).
MAY_SPILL = {("pvc", "push_w8_l64"), ("pvc", "combine_w8_l64")}
LABEL = re.compile(r"^(L\d+):")
JUMP = re.compile(r"\b(?:jmpi|goto|goto\.b|while|brc|brd|call)\b")
TARGET = re.compile(r"\bL\d+\b")
# A line held in a cache would be spun on for ever. Atomics don't count as loads.
CACHED_LOAD = r"load\.ugm(?!\S*\.uc\.uc)"
MESSAGE = re.compile(r"//.*?;\s*((load|store|atomic_?\w*|fence)\.(ugm|slm)\S*)")


class Kernel:
    def __init__(self, path, info):
        self.lines, self.at = [], {}
        for line in open(path, encoding="utf-8"):
            line = line.rstrip()
            if m := LABEL.match(line):
                self.at[m[1]] = len(self.lines)
            elif line and not line.startswith("//") and not line.startswith("."):
                self.lines.append(line)
        self.messages = [(i, m[1]) for i, line in enumerate(self.lines) if (m := MESSAGE.search(line))]
        self.info = info
        self.loops = []
        for i, line in enumerate(self.lines):
            if JUMP.search(line):
                for label in TARGET.findall(line.split("//")[0]):
                    if label in self.at and self.at[label] <= i:
                        self.loops.append((self.at[label], i))

    def found(self, pattern, inside=None):
        regex = re.compile(pattern)
        low, high = inside or (0, len(self.lines))
        return [i for i, text in self.messages if low <= i <= high and regex.match(text)]

    def innermost(self, line):
        around = [loop for loop in self.loops if loop[0] <= line <= loop[1]]
        return min(around, key=lambda loop: loop[1] - loop[0], default=None)


def kernel_infos(folder):
    """What .ze_info says of each kernel, as flat name -> value."""
    infos, name, inside = {}, None, False
    for line in open(os.path.join(folder, ".ze_info"), encoding="utf-8"):
        if re.match(r"\S", line):
            inside = line.startswith("kernels:")
        elif inside and (m := re.match(r"\s*- name:\s*(\S+)\s*$", line)) and len(line) - len(line.lstrip()) <= 2:
            name = m[1]
            infos[name] = {}
        elif inside and name and (m := re.match(r"\s+(\w+):\s*(\S+)\s*$", line)):
            infos[name].setdefault(m[1], m[2])
    return infos


def judge_spin(kernel, require, poll):
    """The rules of a loop that polls; returns the last one."""
    polls = kernel.found(poll)
    require(polls, "no uncached poll of a flag")
    spin = None
    for at in polls:
        loop = kernel.innermost(at)
        if loop is None:
            continue
        spin = loop
        require(kernel.found(r"fence\.ugm", loop), "a spin loop without its fence")
        require(not kernel.found(CACHED_LOAD, loop), "a spin loop loads through a cache")
    require(spin, "no flag is polled in a loop")
    return spin


def judge_lines(name, kernel, require, row):
    """Data and flag in one store."""
    form = int(name.rsplit("_l", 1)[1])
    poll = r"load\.ugm\.d32\.a64\.uc\.uc"
    # Of 8-byte elements a work-item has two of the narrowest lines, side by side.
    narrow = form == 8 and "_w8_" not in name
    line_type = "d32x2" if narrow else "d32x4"
    store = rf"store\.ugm\.{line_type}\.a64"
    uncached = kernel.found(store + r"\.uc\.uc")
    require(uncached, f"no {line_type} store of a line, or one through a cache")
    # With 64-byte lines, users' buffers are written 16 bytes at a time as well, through the caches; so are boundaries'.
    require(form == 64 or name.startswith(("fused_", "columns_")) or len(uncached) == len(kernel.found(store)), "a line is stored through a cache")
    for at in kernel.found(poll):
        require(kernel.innermost(at), "a flag is polled outside any loop")
    spin = judge_spin(kernel, require, poll)
    for at in kernel.found(poll):
        loop = kernel.innermost(at)
        if loop:
            require(not kernel.found(store, loop), "the poll has left its loop: that around it also stores lines")
    require(kernel.found(r"store\.ugm\.d32x2\.a64\.uc\.uc"), "nothing clears the flags past the caches")
    require(kernel.found(rf"load\.ugm\.{line_type}\.a64\.uc\.uc"), f"no uncached {line_type} load of a line")
    if spin:
        row["spin"] = spin[1] - spin[0] + 1
        outer = [l for l in kernel.loops if l[0] <= spin[0] and spin[1] <= l[1] and kernel.found(store, l)]
        if outer:
            low, high = min(outer, key=lambda l: l[1] - l[0])
            row["lines"] = high - low + 1


def judge_flags(kernel, require, row):
    """Flags apart from their data: one work-item polls, a fence orders what was stored before."""
    spin = judge_spin(kernel, require, r"load\.ugm\.d32x1t\.a64\.uc\.uc")
    require(kernel.found(r"fence\.ugm\.\S*(gpu|tile|system)"), "no fence between data and flag")
    if spin:
        row["spin"] = spin[1] - spin[0] + 1


def judge_boundary(name, kernel, require):
    """Nearly all that a boundary reads are weights: 16 bytes at a time, one load for each stream."""
    streams = int(re.search(r"_s(\d)", name)[1])
    if name.startswith("columns_"):
        # One block: there need be no loop. Lines are loaded past the caches.
        wide = kernel.found(r"load\.ugm\.d32x4\.a64(?!\S*\.uc\.uc)")
    else:
        wide = [at for at in kernel.found(r"load\.ugm\.d32x4\.a64") if kernel.innermost(at)]
    require(len(wide) >= streams, f"{len(wide)} loads of 16 bytes in loops, for {streams} streams of weights")
    require(kernel.found(r"fence\.ugm\.\S*(gpu|tile)"), "no fence between a group's sums and its count")


def judge(device, name, kernel):
    faults = []

    def require(condition, text):
        if not condition:
            faults.append(text)

    info = kernel.info
    spills = sum(int(info.get(key, 0)) for key in ("spill_size", "private_size", "spill_mem_per_thread"))
    require(spills == 0 or (device, name) in MAY_SPILL, f"{spills} bytes of registers spilled or kept in memory")
    require(any(m[1] for m in [re.search(r"\bor\b.*cr0\.0.*?(0x[0-9A-Fa-f]+):u", line) for line in kernel.lines]
                if m and int(m[1], 16) & FLUSHES_UNLESS), "binary32 subnormals are flushed")
    toggles = [i for i, line in enumerate(kernel.lines) if re.search(r"\bxor\b.*cr0\.0", line)]
    require(len(toggles) % 2 == 0, "the rounding mode is not put back")
    for start, end in zip(toggles[::2], toggles[1::2]):
        require(not any(start < at <= end for at in kernel.at.values()), "a rounding mode outlives its block")
        require(not kernel.found(r".*ugm", (start, end)), "memory is accessed in a division's rounding mode")
    row = {"spills": spills, "spin": "-", "lines": "-"}
    is_boundary = name.startswith(("mhc_", "fused_", "columns_"))
    if is_boundary:
        judge_boundary(name, kernel, require)
    if re.search(r"_l\d+$", name):
        judge_lines(name, kernel, require, row)
    elif not is_boundary and name != "probe":
        judge_flags(kernel, require, row)
    uncached = kernel.found(r"(load|store)\.ugm\S*\.uc\.uc")
    row |= {
        "simd": info.get("simd_size", "?"), "grf": info.get("grf_count", "?"), "all": len(kernel.lines),
        "uncached": len(uncached), "cached": len(kernel.found(r"(load|store)\.ugm")) - len(uncached),
        "atomics": len(kernel.found(r"atomic")), "slm": info.get("slm_size", 0),
    }
    return row, faults


COLUMNS = ["simd", "grf", "spills", "slm", "all", "lines", "spin", "uncached", "cached", "atomics"]


def main():
    folder, device, kernels = sys.argv[1:]
    infos = kernel_infos(folder)
    failed = False
    for name in sorted(infos, key=lambda n: (n.rsplit("_l", 1)[0], len(n), n)):
        row, faults = judge(device, name, Kernel(os.path.join(folder, f".text.{name}.asm"), infos[name]))
        for fault in sorted(set(faults)):
            print(f"{device}: {name}: {fault}", file=sys.stderr)
            failed = True
        print(f"{device:8} {name:17} " + " ".join(f"{row[c]!s:>8}" for c in COLUMNS))
    if len(infos) < int(kernels):
        print(f"{device}: {len(infos)} kernels of {kernels}", file=sys.stderr)
        failed = True
    return failed


if len(sys.argv) == 2 and sys.argv[1] == "--header":
    print(f"{'device':8} {'kernel':17} " + " ".join(f"{c:>8}" for c in COLUMNS))
    sys.exit(0)
sys.exit(main())
