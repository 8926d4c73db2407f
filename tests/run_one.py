"""Runs the test files named on the command line, as Bazel needs it: from the root, as a program."""

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    files = [str(root / file) for file in sys.argv[1:]]
    sys.exit(pytest.main(["--rootdir", str(root), *files]))
