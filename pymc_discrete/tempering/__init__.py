"""Tempering: models whose likelihood is raised to a power, swaps of replicas, schedules."""
