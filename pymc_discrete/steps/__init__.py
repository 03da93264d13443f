"""PyMC's step methods, in which pm.sample drives the engine."""
