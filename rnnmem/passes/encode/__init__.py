"""Encodings of what stays saved: bits, rounded numbers, host memory."""
