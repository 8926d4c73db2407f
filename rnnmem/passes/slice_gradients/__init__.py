"""Gradients of slices are put side by side, not each between zeros and added up."""
