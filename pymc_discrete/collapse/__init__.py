"""Sums over discrete sites in closed form: their elimination, collapsed densities, marginalised models."""
