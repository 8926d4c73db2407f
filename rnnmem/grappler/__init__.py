"""What TensorFlow's graph optimizer may do to a Net, and what keeps it from doing so."""
