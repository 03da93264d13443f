"""The columns of `pmd.summary`, one file for each new column; they are registered by
`statistics.batch.column`.
"""
