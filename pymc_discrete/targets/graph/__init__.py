"""The log density of a model as a PyTensor graph: made, rewritten, and asked what any graph can be asked."""
