"""Learning energy-based models."""
