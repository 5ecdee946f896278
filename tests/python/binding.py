"""Opens a collective library as Python code does, by each name and mode, and tells whose functions it got.

binding.py REAL_LIBRARY EXPECTED: EXPECTED says of names and paths, one after the other, whether they get to a library that
is not REAL_LIBRARY: ours or real.
"""

import ctypes
import os
import sys


def owner(function: object) -> str:
    """The file whose code a function is."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            parts = line.split(maxsplit=5)
            begin, end = (int(part, 16) for part in parts[0].split("-"))
            if begin <= address < end:
                return os.path.realpath(parts[5].strip())
    sys.exit("a function of no file")


def main() -> None:
    real, by_name, by_path = os.path.realpath(sys.argv[1]), sys.argv[2], sys.argv[3]
    wrong = 0
    for asked, expected in (("libccl.so.2", by_name), ("libccl.so", by_name), (sys.argv[1], by_path)):
        for mode in (ctypes.RTLD_LOCAL, ctypes.RTLD_GLOBAL, os.RTLD_DEEPBIND | os.RTLD_NOW):
            # Each in a process of its own: what is loaded once is found by any name.
            child = os.fork()
            if child == 0:
                library = ctypes.CDLL(asked, mode=mode)
                got = "real" if owner(library.onecclAllReduce) == real else "ours"
                version = ctypes.c_int()
                if got == "ours" and (library.onecclGetVersion(ctypes.byref(version)) or version.value != 20220200):
                    got = f"a library of version {version.value}"
                if got != expected:
                    print(f"{asked}, mode {mode}: {got} instead of {expected}", file=sys.stderr, flush=True)
                os._exit(got != expected)
            wrong += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
    if wrong:
        sys.exit(f"{wrong} of 9 ways of asking are not as expected")


main()
