"""Saved loop counters and constants stay on the host, where the gradient loop counts them down."""
