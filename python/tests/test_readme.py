"""The readme's example does what the readme says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import cclx

README = Path(__file__).resolve().parent.parent / "README.md"


class Readme(unittest.TestCase):
    def test_the_example_prints_what_is_promised(self) -> None:
        text = README.read_text()
        example = re.search(r"```python\n(.*?)```", text, re.DOTALL)
        promised = re.search(r"It prints `(.*?)` and `(.*?)`", text)
        assert example and promised
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "example.py")
            program.write_text(example[1])
            # The library by the name that a user would give it.
            environment = {**os.environ, "CCLX_LIBRARY": cclx.library_path()}
            done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stdout.splitlines()), (0, list(promised.groups())), done.stderr)


if __name__ == "__main__":
    unittest.main()
