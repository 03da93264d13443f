"""Knowledge about elements besides their draws: the probability of other values, and the variables that hold
them.
"""
