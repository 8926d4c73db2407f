"""Operands that were repeated to a size are broadcast by their readers."""
