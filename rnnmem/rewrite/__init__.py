"""Applies a Plan to a Net: no decisions here."""
