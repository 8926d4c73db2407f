"""What was decided, for people."""
