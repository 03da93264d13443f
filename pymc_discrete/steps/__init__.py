"""PyMC's step methods: the engine, driven by pm.sample."""
