#!/usr/bin/env python3
"""instructions.py CALLS FILE...: instructions of a steady-state call outside the kernel, from callgrind's output.

Each file holds what one window of CALLS calls took in the calling thread. What the kernel's twin takes, with all that it
calls, is subtracted. Prints the least of all windows, outside and inside: in others the driver's own thread may have run
a kernel, and the caller have waited for it. Fails if no window ran a kernel.
"""

import re
import sys

KERNEL = re.compile(r"ccl_ze::twins::(?:\w+::)*\w*kernel")


def window(path):
    """Instructions in all, and those of kernels."""
    names = {}
    total = kernels = 0
    calling = False

    def name(text):
        match = re.match(r"\((\d+)\)(?: (.*))?", text)
        if match.group(2) is not None:
            names[match.group(1)] = match.group(2)
        return names.get(match.group(1), "")

    with open(path, encoding="utf-8", errors="replace") as lines:
        caller = callee = ""
        for line in lines:
            line = line.rstrip("\n")
            if line.startswith("fn="):
                caller = name(line[3:])
            elif line.startswith("cfn="):
                callee = name(line[4:])
            elif line.startswith("calls="):
                # Its number counts calls out of the window too; the cost on the next line doesn't.
                calling = True
            elif re.match(r"[+\-*\d]", line):
                cost = int(line.split()[1]) if len(line.split()) > 1 else 0
                if not calling:
                    total += cost
                elif KERNEL.search(callee) and not KERNEL.search(caller):
                    kernels += cost
                calling = False
    return total, kernels


def main():
    calls = int(sys.argv[1])
    best = None
    for path in sys.argv[2:]:
        total, kernels = window(path)
        if kernels == 0:
            continue
        outside = (total - kernels) / calls
        if best is None or outside < best[0]:
            best = (outside, kernels / calls)
    if best is None:
        sys.exit("no window ran a kernel in the calling thread")
    print(f"{best[0]:.0f} {best[1]:.0f}")


main()
