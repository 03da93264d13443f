"""The ways in which differences of a log density are found, one module each, behind one interface
(`Part`).
"""
