"""Coefficients that enter a log density as a quadratic form, and are integrated out of it."""
