#!/usr/bin/env python3
"""trace.py FILE.spv: shows how the kernels of a module access what they are given.

Follows each pointer of a load, store or atomic back to the kernel's arguments, and fails unless
- whatever may point into memory that others use at the same time (inbox, outbox, host) is loaded and stored with the
  Nontemporal operand and touched by nothing else, and
- atomics go to the communicator's state, the workspace of boundaries, or the work-group's own memory only.
"""

import re
import subprocess
import sys

SHARED = {"inbox", "outbox", "host"}
ATOMIC_MAY = {"state", "local", "workspace"}
RING = "send recv state host inbox outbox count period rank n tiles rounds slot_tiles kind factor".split()
PUSH = "send recv state host peers count period factor kind rank n mode part rounds".split()
DIRECT = "send recv state host peers buffers count period factor kind rank n".split()
CHANNEL = ("send recv state host peers table send_stride recv_stride bytes count first factor kind rank n sends receives "
           "wires part flags").split()
MHC = """x residual post comb previous_pre weights scale base norm_weight residual_out post_out comb_out pre_out y normed
    workspace rows hidden shape iterations rms_eps pre_eps sinkhorn_eps post_multiplier norm_eps columns width""".split()
FUSED = MHC + "x_out state host peers kind_part rounds_rows factor wires".split()
# What the probe writes may be any rank's staging memory.
ARGUMENTS = {"ring": RING, "push": PUSH, "bulk": PUSH, "direct": DIRECT, "move": CHANNEL, "combine": CHANNEL,
             "probe": ["inbox", "words", "seed"], "mhc": MHC, "fused": FUSED, "columns": FUSED}
# Tables of addresses: what their elements point to. Peers' users' buffers are no more than the own.
TABLES = {"peers": "outbox", "buffers": "recv"}

FOLLOWED = {
    "OpBitcast", "OpInBoundsPtrAccessChain", "OpPtrAccessChain", "OpInBoundsAccessChain", "OpAccessChain",
    "OpPtrCastToGeneric", "OpGenericCastToPtr", "OpConvertPtrToU", "OpConvertUToPtr", "OpCopyObject",
}
MERGED = {"OpPhi": 2, "OpSelect": 1}
ARITHMETIC = {"OpIAdd", "OpISub"}
MEMORY = {"OpLoad": 1, "OpStore": 0, "OpCopyMemory": 0, "OpCopyMemorySized": 0}


def functions(text):
    """Yields (name, lines) of each function with a body."""
    names = dict(re.findall(r'OpName %(\S+) "([^"]+)"', text))
    entries = {}
    for line in text.splitlines():
        if m := re.search(r'OpEntryPoint Kernel %(\S+) "([^"]+)"', line):
            entries[m[1]] = m[2]
    body, name = None, None
    for line in text.splitlines():
        if m := re.match(r"\s*%(\S+) = OpFunction ", line):
            name, body = entries.get(m[1], names.get(m[1], m[1])), []
        if body is not None:
            body.append(line.strip())
            if line.strip() == "OpFunctionEnd":
                yield name, m, body
                body = None


def operation(line):
    """(result, opcode, operands) of a line of disassembly."""
    m = re.match(r"(?:%(\S+) = )?(Op\w+)\s*(.*)", line)
    return (m[1], m[2], m[3].split()) if m else (None, None, [])


def judge(name, body, variables):
    parsed = [operation(line) for line in body]
    parameters = [result for result, op, _ in parsed if op == "OpFunctionParameter"]
    arguments = ARGUMENTS[name.split("_")[0]]
    if len(parameters) != len(arguments):
        return [f"{name}: {len(parameters)} arguments, {len(arguments)} expected"], 0
    if any(op == "OpFunctionCall" for _, op, _ in parsed):
        # The entry point, which hands its arguments on to the function of the same name.
        return [], 0
    roots = {p: {a} for p, a in zip(parameters, arguments)}
    roots |= {v: {kind} for v, kind in variables.items()}
    roots |= {result: {"private"} for result, op, _ in parsed if op == "OpVariable"}
    changed = True
    while changed:
        changed = False
        for result, op, operands in parsed:
            sources = []
            if op in FOLLOWED:
                sources = operands[1:2]
            elif op in ARITHMETIC:
                sources = operands[1:]
            elif op in MERGED:
                sources = operands[1::2] if op == "OpPhi" else operands[2:4]
            elif op == "OpLoad":
                table = roots.get(operands[1].lstrip("%"), set()) & TABLES.keys()
                found = {TABLES[name] for name in table}
            if op != "OpLoad":
                found = set().union(*(roots.get(s.lstrip("%"), set()) for s in sources)) if sources else set()
            if found - roots.get(result, set()):
                roots[result] = roots.get(result, set()) | found
                changed = True
    faults, accesses = [], 0
    for line, (result, op, operands) in zip(body, parsed):
        if op in MEMORY:
            pointer = operands[MEMORY[op]]
            what = roots.get(pointer.lstrip("%"), set())
            if not what:
                faults.append(f"{name}: nobody knows where this goes: {line}")
            elif what & SHARED:
                accesses += 1
                if op not in ("OpLoad", "OpStore") or "Nontemporal" not in line:
                    faults.append(f"{name}: {'/'.join(sorted(what))} without Nontemporal: {line}")
        elif op and op.startswith("OpAtomic"):
            pointer = operands[0] if op == "OpAtomicStore" else operands[1]
            what = roots.get(pointer.lstrip("%"), set())
            # Boundaries use nothing else that others use at the same time.
            accesses += what == {"workspace"}
            if not what or what - ATOMIC_MAY:
                faults.append(f"{name}: an atomic on {'/'.join(sorted(what)) or 'something unknown'}: {line}")
    if accesses == 0:
        faults.append(f"{name}: no access to shared memory found: the trace itself is broken")
    return faults, accesses


def run(text):
    variables = {}
    for line in text.splitlines():
        result, op, operands = operation(line.strip())
        if op == "OpVariable":
            variables[result] = {"Workgroup": "local", "Input": "builtin", "UniformConstant": "constant"}.get(
                operands[1], "private")
    faults, total, kernels = [], 0, 0
    for name, _, body in functions(text):
        found, accesses = judge(name, body, variables)
        faults += found
        total += accesses
        kernels += accesses > 0
    return faults, total, kernels


def main():
    text = subprocess.run(["spirv-dis", sys.argv[1]], check=True, capture_output=True, text=True).stdout
    faults, total, kernels = run(text)
    for fault in faults[:20]:
        print(fault, file=sys.stderr)
    if faults:
        return 1
    # The controls: each rule broken in one line of the same text must be found.
    lines = text.splitlines()
    marked = [i for i, line in enumerate(lines) if "Nontemporal" in line]
    for i in (marked[0], marked[len(marked) // 2], marked[-1]) if marked else ():
        broken = lines[:i] + [re.sub(r"(\|?)Nontemporal(\|?)", r"", lines[i])] + lines[i + 1:]
        if not run("\n".join(broken))[0]:
            print(f"a plain access passes: {lines[i]}", file=sys.stderr)
            return 1
    # Where there are none, the last store, which goes to a user's buffer.
    i = marked[0] if marked else max(i for i, line in enumerate(lines) if "OpStore" in line)
    _, op, operands = operation(lines[i].strip())
    pointer = operands[MEMORY[op]]
    atomic = f"%atomic = OpAtomicLoad %uint {pointer} %one %two"
    if not run("\n".join(lines[:i] + [atomic] + lines[i:]))[0]:
        print("an atomic on other memory passes", file=sys.stderr)
        return 1
    what = "all Nontemporal, none atomic" if marked else "all atomics on the workspace"
    print(f"{kernels} kernels: {total} accesses to shared memory, {what}", file=sys.stderr)
    return 0


sys.exit(main())
