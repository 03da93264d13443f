"""Experiments of Grathwohl et al. 2021 (GWG) and Sun et al. 2022 (PAS), see ../README.md."""
