"""Sites and neighbours, constraints, interactions, and a log density over them: what kernels know."""
