"""A PyMC model becomes the graph of a block: what is known of its variables, how it is written."""
