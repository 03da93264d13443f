"""Graphs with coefficients integrated out."""
