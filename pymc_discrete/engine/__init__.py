"""The compiled program of a chain, of which pm.sample and pmd.sample take the draws."""
