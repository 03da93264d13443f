"""pmd.sample: the engine, driven for all chains at once."""
