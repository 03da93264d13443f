"""The checks of a run: a file for each matter, registered by `findings.check`."""
