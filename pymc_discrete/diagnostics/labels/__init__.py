"""Labels of sites: whether they are switched, in one order again, and what does not depend on their names."""
