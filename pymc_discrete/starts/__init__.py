"""What must hold before the first draw, and what is said where it does not."""
