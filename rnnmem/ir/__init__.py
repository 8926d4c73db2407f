"""The Net: its nouns, the table of op types, text, editing and inlining."""

from rnnmem.ir.text import parse

__all__ = ["parse"]
