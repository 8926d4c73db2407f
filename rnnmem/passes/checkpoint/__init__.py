"""Checkpoints over time: states of some iterations are kept, the rest is replayed."""
