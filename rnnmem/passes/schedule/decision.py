"""Scheduling edges: control edges that decide when an op runs."""

from __future__ import annotations

from rnnmem.ir.edges import Edge as Edge
