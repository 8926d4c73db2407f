"""Lists of gradients begin without elements."""
