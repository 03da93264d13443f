"""The methods to compute differences of a log density, one module each, with one interface (`Part`)."""
