"""Questions about a block's graph, one file each: what is read, which sites, what is linear, a sum, ..."""
