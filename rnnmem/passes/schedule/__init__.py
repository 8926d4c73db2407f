"""Scheduling edges: which op waits for which, so that large buffers take turns."""
