"""Rematerialisation: saved sets of step nets by minimum cuts, and their clones."""
