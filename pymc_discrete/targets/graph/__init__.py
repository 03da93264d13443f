"""The log density of a model as a PyTensor graph: how it is built and rewritten, and general analyses."""
