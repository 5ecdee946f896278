"""What is memory, and what is refused before the library hears of it."""

from __future__ import annotations

import array
import ctypes
import os
import pickle
import subprocess
import sys
import unittest

import cclx
from cclx.buffers import buffer_of, to_write


class Strided:
    """An array as numpy tells of it, without numpy."""

    def __init__(
        self, typestr: str, shape: tuple[int, ...], strides: tuple[int, ...] | None, read_only: bool = False
    ) -> None:
        self.memory = (ctypes.c_char * 256)()
        address = ctypes.addressof(self.memory)
        self.__array_interface__ = {
            "typestr": typestr,
            "shape": shape,
            "strides": strides,
            "data": (address, read_only),
            "version": 3,
        }


class Buffers(unittest.TestCase):
    def test_what_is_memory(self) -> None:
        floats = (ctypes.c_float * 6)(1, 2)
        for thing, count, dtype in [
            (floats, 6, cclx.DataType.FLOAT32),
            (((ctypes.c_int64 * 3) * 2)(), 6, cclx.DataType.INT64),
            ((ctypes.c_bool * 3)(), 3, cclx.DataType.UINT8),
            (array.array("d", [1, 2, 3]), 3, cclx.DataType.FLOAT64),
            (array.array("i", [1, 2, 3]), 3, cclx.DataType.INT32),
            (array.array("d"), 0, cclx.DataType.FLOAT64),
            (bytearray(7), 7, cclx.DataType.UINT8),
            (memoryview(bytearray(8)).cast("q"), 1, cclx.DataType.INT64),
            (Strided("<f2", (2, 3), None), 6, cclx.DataType.FLOAT16),
            (Strided("<u4", (2, 3), (12, 4)), 6, cclx.DataType.UINT32),
            (Strided("|b1", (5,), None), 5, cclx.DataType.UINT8),
        ]:
            buffer = to_write(thing, "it")
            self.assertEqual((buffer.count, buffer.dtype), (count, dtype), thing)
            self.assertEqual(buffer.address != 0, count > 0)
        self.assertEqual(buffer_of(floats).address, ctypes.addressof(floats))
        self.assertEqual(ctypes.string_at(buffer_of(b"abc").address, 3), b"abc")
        self.assertTrue(buffer_of((ctypes.c_bool * 3)()).truth)
        self.assertTrue(buffer_of(Strided("|b1", (5,), None)).truth)

    def test_memory_stays_where_it_is(self) -> None:
        growing = bytearray(4)
        buffer = buffer_of(growing)
        with self.assertRaises(BufferError):
            growing.extend(b"more")
        del buffer
        growing.extend(b"more")

    def test_what_is_not(self) -> None:
        for thing, kind in [
            (3, TypeError),
            ("text", TypeError),
            (Strided("<c8", (2,), None), TypeError),
            (Strided(">f4", (2,), None), TypeError),
            (Strided("<f4", (2, 3), (4, 8)), ValueError),
            (memoryview(bytearray(8))[::2], ValueError),
            (array.array("H", [1]), TypeError),
        ]:
            with self.assertRaises(kind, msg=repr(thing)):
                buffer_of(thing)
        for thing in (b"abc", Strided("<f4", (2,), None, True)):
            with self.assertRaises(ValueError):
                to_write(thing, "it")

    def test_errors_are_named_and_travel(self) -> None:
        with self.assertRaises(cclx.InvalidUsage) as caught:
            cclx._library.call("onecclGroupEnd")
        self.assertEqual((caught.exception.code, caught.exception.call), (5, "onecclGroupEnd"))
        self.assertIn("onecclGroupEnd", str(caught.exception))
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((type(again), str(again), again.code), (cclx.InvalidUsage, str(caught.exception), 5))
        with self.assertRaises(ValueError):
            cclx.UniqueId(b"short")

    def test_where_the_library_is_looked_for(self) -> None:
        path = cclx.library_path()
        built = os.path.join(os.environ["CARGO_TARGET_DIR"], "release", "libcclx.so")
        self.assertTrue(os.path.samefile(path, built), path)
        self.assertGreaterEqual(cclx.version(), 20220000)
        say = "import cclx; print(cclx.library_path())"

        def asked(**changes: str | None) -> subprocess.CompletedProcess[str]:
            environment = {k: v for k, v in {**os.environ, **changes}.items() if v is not None}
            return subprocess.run([sys.executable, "-c", say], env=environment, capture_output=True, text=True, timeout=60)

        # One that the process has already in oneCCL's place is taken, and no second copy.
        preloaded = asked(CARGO_TARGET_DIR="/nowhere", LD_PRELOAD=os.path.realpath(path))
        self.assertTrue(os.path.samefile(preloaded.stdout.strip(), path), preloaded)
        named = asked(CCLX_LIBRARY=built, CARGO_TARGET_DIR="/nowhere")
        self.assertEqual(named.stdout.strip(), built, named)
        absent = asked(CARGO_TARGET_DIR="/nowhere")
        self.assertIn("name it in CCLX_LIBRARY; also tried: ", absent.stderr)
        other = asked(CCLX_LIBRARY="libc.so.6")
        self.assertIn("libc.so.6 has no onecclGetVersion: it is another library, or too old", other.stderr)


if __name__ == "__main__":
    unittest.main()
