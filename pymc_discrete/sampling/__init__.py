"""pmd.sample, which drives the engine for all chains at once."""
