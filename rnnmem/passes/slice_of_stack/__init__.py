"""Rows of a stacked list are read from the list, and no stack is made."""
