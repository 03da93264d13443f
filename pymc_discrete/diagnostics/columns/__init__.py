"""The columns of `pmd.summary`: a file for each new one, registered by `statistics.batch.column`."""
