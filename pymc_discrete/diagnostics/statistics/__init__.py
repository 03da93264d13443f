"""Statistics of draws: of single elements, of whole vectors, and of a batch of elements for the table."""
