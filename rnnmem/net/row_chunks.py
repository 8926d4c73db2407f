"""The marks of the ops of a loop over chunks of rows, and how long a chunk may be.

The marks help to foresee memory and to find the loops; the checker believes none of them.
"""

from __future__ import annotations

CHUNKS = "_rnnmem_chunks"
"""On the loop: how many rows of the source a chunk has."""
PART = "_rnnmem_rows"
"""On what cuts a chunk out of a blob: how many rows it has at most."""
WHOLE = "_rnnmem_whole"
"""On an op of the body: ``input:blob`` of numbers that stand there for the whole."""

ACCUMULATED = {"bfloat16": "float32", "float16": "float32", "half": "float32"}
"""Dtype -> the one in which its chunks are added up, where that is another one."""
