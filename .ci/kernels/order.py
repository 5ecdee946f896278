#!/usr/bin/env python3
"""order.py FILE.spv: puts each block behind the one that dominates it, as SPIR-V demands and LLVM does not.

The translator writes blocks in LLVM's order. Blocks that stand right stay where they are.
"""

import struct
import sys

FUNCTION, FUNCTION_END, LABEL = 54, 56, 248
BRANCH, BRANCH_CONDITIONAL, SWITCH = 249, 250, 251


def instructions(words):
    at = 5
    while at < len(words):
        length = words[at] >> 16
        yield words[at] & 0xFFFF, words[at:at + length]
        at += length


def successors(block, labels):
    opcode, words = block[-1]
    if opcode == BRANCH:
        return words[1:2]
    if opcode == BRANCH_CONDITIONAL:
        return words[2:4]
    if opcode == SWITCH:
        # Literals have one word or two, according to the selector's type: the wider are told by their length.
        for stride in (2, 3):
            targets = [words[2], *words[2 + stride::stride]]
            if (len(words) - 3) % stride == 0 and all(target in labels for target in targets):
                return targets
        raise ValueError("a switch of another form")
    return []


def dominators(blocks):
    """The immediate dominator of each block that can be reached."""
    labels = {block[0][1][1]: i for i, block in enumerate(blocks)}
    following = [[labels[s] for s in successors(block, labels)] for block in blocks]
    preceding = [[] for _ in blocks]
    for i, targets in enumerate(following):
        for target in targets:
            preceding[target].append(i)
    order, seen, stack = [], {0}, [(0, iter(following[0]))]
    while stack:
        node, rest = stack[-1]
        target = next((t for t in rest if t not in seen), None)
        if target is None:
            order.append(node)
            stack.pop()
        else:
            seen.add(target)
            stack.append((target, iter(following[target])))
    place = {node: i for i, node in enumerate(order)}
    above = {0: 0}

    def meet(a, b):
        while a != b:
            while place[a] < place[b]:
                a = above[a]
            while place[b] < place[a]:
                b = above[b]
        return a

    changed = True
    while changed:
        changed = False
        for node in reversed(order[:-1]):
            found = None
            for before in preceding[node]:
                if before in above:
                    found = before if found is None else meet(before, found)
            if above.get(node) != found:
                above[node], changed = found, True
    return above


def ordered(blocks):
    above = dominators(blocks)
    waiting, children, result = list(range(len(blocks))), {}, []
    for node in waiting:
        if node in above and node != 0:
            children.setdefault(above[node], []).append(node)
    written = set()

    def write(node):
        written.add(node)
        result.append(blocks[node])

    # The first that may be written, each time: what was passed over comes as soon as it may.
    held = set()
    for node in waiting:
        if node == 0 or node not in above or above[node] in written:
            write(node)
            ready = [child for child in children.get(node, []) if child in held]
            while ready:
                child = min(ready)
                ready.remove(child)
                held.discard(child)
                write(child)
                ready += [c for c in children.get(child, []) if c in held]
        else:
            held.add(node)
    assert len(result) == len(blocks)
    return result


def main():
    data = open(sys.argv[1], "rb").read()
    words = struct.unpack(f"<{len(data) // 4}I", data)
    out, blocks = list(words[:5]), None
    for opcode, instruction in instructions(words):
        if opcode == LABEL:
            blocks = [] if blocks is None else blocks
            blocks.append([])
        if opcode == FUNCTION_END and blocks is not None:
            for block in ordered(blocks):
                for _, words_of in block:
                    out += words_of
            blocks = None
        if blocks is None:
            out += instruction
        else:
            blocks[-1].append((opcode, instruction))
    open(sys.argv[1], "wb").write(struct.pack(f"<{len(out)}I", *out))


main()
