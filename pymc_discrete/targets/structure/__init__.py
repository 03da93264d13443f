"""Analyses of a block's graph, one file each: elements read, sites, linear Ops, degree, sums, terms, cost."""
