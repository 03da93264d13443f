"""Discrete flows: paths from noise to draws, the networks that follow them, and their exact correction."""
