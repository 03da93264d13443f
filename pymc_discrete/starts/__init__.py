"""Conditions that must hold before the first draw, and the errors where they do not."""
