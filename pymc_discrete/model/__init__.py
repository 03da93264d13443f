"""A PyMC model becomes the graph of a block: its variables, and how its log density is written and
rewritten."""
