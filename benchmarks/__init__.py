"""Benchmarks of pymc_discrete against its peers; see README.md."""
