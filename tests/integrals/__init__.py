"""Tests of coefficients that are integrated out."""
