"""Discrete flows: paths from noise to draws, networks that follow them, and how they are made exact."""
