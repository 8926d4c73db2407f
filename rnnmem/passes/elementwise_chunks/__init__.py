"""Chains of elementwise ops by chunks of rows, so that what lies between never exists whole."""
