"""The experiments of the papers, see ../README.md."""
