"""Labels of sites: whether they are switched, relabelling, and summaries that do not depend on
their names."""
