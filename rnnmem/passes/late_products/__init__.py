"""Products by a constant are made when the gradient that reads them arrives, not in between."""
