"""Graphs of PyTensor, and the questions that are asked of them."""
