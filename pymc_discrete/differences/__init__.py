"""By how much a log density changes when a site does: from the graph of a block to a target."""
