"""Residuals outside of loops that are rematerialised near their gradient, region by region."""
