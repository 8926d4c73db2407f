"""Facts about a Net: loops, trip counts, liveness, shapes, costs. Pure functions."""
