"""The ways to find differences, one file each."""
