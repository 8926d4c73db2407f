"""Everything that touches TensorFlow: planning never imports from here."""
