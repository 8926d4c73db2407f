"""Lists that were unstacked from a sequence are not made: loops read what they were made of."""
