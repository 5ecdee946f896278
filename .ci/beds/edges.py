#!/usr/bin/env python3
"""edges.py DUMP BEFORE KERNEL COUNT AFTER: whether a graph's dump, in Graphviz's language, has COUNT kernels one behind the
other, the first behind another node and the last before one.

BEFORE, KERNEL and AFTER are regular expressions for labels. Exit status 1, and why, otherwise. Reads what SYCL's
print_graph writes and zeGraphDumpContentsExt of the software driver and of Intel's."""
import re
import sys


def read(text):
    """Labels by node, and edges."""
    labels, edges = {}, []
    for name, label in re.findall(r'("[^"]+"|\w+)\s*\[[^\]]*?label\s*=\s*("(?:[^"\\]|\\.)*"|<.*?>)\s*[\],;]', text, re.S):
        if name not in ('node', 'edge', 'graph'):
            labels[name.strip('"')] = label
    for before, after in re.findall(r'("[^"]+"|\w+)\s*->\s*("[^"]+"|\w+)', text):
        edges.append((before.strip('"'), after.strip('"')))
    return labels, edges


def reached(edges, start):
    seen, todo = set(), [start]
    while todo:
        at = todo.pop()
        for before, after in edges:
            if before == at and after not in seen:
                seen.add(after)
                todo.append(after)
    return seen


def fault(labels, edges, before, kernel, count, after):
    first, kernels, last = ([node for node, label in labels.items() if re.search(pattern, label)]
                            for pattern in (before, kernel, after))
    if len(kernels) != count:
        return f'{len(kernels)} nodes are {kernel!r}, not {count}'
    behind = {node: reached(edges, node) for node in labels}
    kernels = sorted(kernels, key=lambda node: len(behind[node].intersection(kernels)), reverse=True)
    for one, other in zip(kernels, kernels[1:]):
        if other not in behind[one]:
            return f'no path from {one} to {other}'
    if not any(kernels[0] in behind[node] for node in first):
        return f'no {before!r} before {kernels[0]}'
    if not any(node in behind[kernels[-1]] for node in last):
        return f'no {after!r} behind {kernels[-1]}'
    return None


def main():
    path, before, kernel, count, after = sys.argv[1:]
    with open(path, encoding='utf-8') as file:
        labels, edges = read(file.read())
    why = fault(labels, edges, before, kernel, int(count), after)
    if why:
        sys.exit(f'{path}: {why}; {len(labels)} nodes, {len(edges)} edges')
    print(f'{len(labels)} nodes, {len(edges)} edges: {before} -> {count} x {kernel} -> {after}')


main()
