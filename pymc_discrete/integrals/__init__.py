"""Graphs of log densities with coefficients integrated out."""
