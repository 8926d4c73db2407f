"""What each technique rewrote, taken back for the comparison with the original."""
