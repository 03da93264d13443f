"""Sums over discrete sites in closed form: variable elimination, collapsed densities, marginalised models."""
