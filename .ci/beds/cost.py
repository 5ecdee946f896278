#!/usr/bin/env python3
"""cost.py LIMIT FILE...: instructions of a call on a SYCL queue, from callgrind's output of tests/sycl/cost.cpp.

Each file holds what one call of `cost_bare`, `cost_many` or `cost_call` took. Prints the medians and their ratios to the bare
submission's. Fails if the call's is above the limit, or if that of a submission with as many arguments is not: the
limit would then let a call pass that hands its arguments on one by one.
"""

import re
import statistics
import sys


def window(path):
    name = total = None
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("desc: Trigger:"):
                match = re.search(r"cost_(\w+)", line)
                name = match and match.group(1)
            elif line.startswith(("summary:", "totals:")):
                total = int(line.split()[1])
    return name, total


def main():
    limit = float(sys.argv[1])
    taken = {"bare": [], "many": [], "call": []}
    for path in sys.argv[2:]:
        name, total = window(path)
        if name in taken and total:
            taken[name].append(total)
    if not all(taken.values()):
        sys.exit("a window is missing")
    median = {name: statistics.median(totals) for name, totals in taken.items()}
    call, many = median["call"] / median["bare"], median["many"] / median["bare"]
    print(
        f"{median['call']:.0f} instructions a call, {call:.2f} of the {median['bare']:.0f} of an empty kernel's submission; "
        f"{many:.2f} with as many arguments"
    )
    if call > limit:
        sys.exit(f"that is above {limit}")
    if many <= limit:
        sys.exit(f"a submission with as many arguments is not above {limit}: nothing would be noticed")


main()
