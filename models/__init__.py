"""Models that show what rnnmem does for a training run."""
