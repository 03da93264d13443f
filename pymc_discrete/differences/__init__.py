"""The changes of a log density when sites move: from the graph of a block to a target."""
