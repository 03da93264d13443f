"""The checks of a run, one file for each subject; they are registered by `findings.check`."""
