"""Distributions that PyMC does not have."""
