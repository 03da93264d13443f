"""Log normalising constants by annealed importance sampling: of targets, and of PyMC models."""
