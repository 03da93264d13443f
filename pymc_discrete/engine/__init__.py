"""The compiled program of a chain, from which pm.sample and pmd.sample take their draws."""
