"""The ways to find differences, a file each."""
