"""All numbers by which draws are judged, each with its reason; no other file has such numbers.

Numbers that say how much is computed at once, how many draws are looked at, or how many names a message has,
decide nothing about draws, and are in the files that use them.
"""

# ---------------------------------------------------------------- numbers of draws that are enough
# A chain of fewer draws is refused: its halves must have two draws each for a variance within them.
FEWEST_DRAWS = 4
FEWEST_DRAWS_OF_R_STAR = (
    10  # a classifier learns from 70 % of each half of a chain, which must be three draws at least
)
# The number of draws of a chain from which R-hat, ESS and elements that never moved are reported. PyMC's own
# checks begin there, and an element that moves in one draw of 20 stands still in all of them with a
# probability of 0.6 %.
ENOUGH_DRAWS = 100

# ---------------------------------------------------------------- slow mixing
# The limits of Vehtari et al. 2021 and of PyMC's own warnings: a larger R-hat, or fewer effective draws per
# chain, means slow mixing.
LARGEST_RHAT = 1.01
FEWEST_EFFECTIVE = 100
# The R-hat from which chains count as being in different modes. The means of two chains are then 2 standard
# deviations of a chain's draws apart; the draws of chains that are merely slow overlap more than that.
RHAT_OF_MODES = 1.5
# The indicators 1[z = k] of values with a probability from RARE_VALUE to COMMON_VALUE must mix. Rarer values
# are drawn so seldom that their R-hat and ESS are noise.
RARE_VALUE, COMMON_VALUE = 0.05, 0.95

# ---------------------------------------------------------------- elements that hardly move, or never
# If more than SURELY_MOVES moves of an element are expected, no move at all is no coincidence: its
# probability is below e^-7, or 1 in 1,100.
SURELY_MOVES = 7.0
# If fewer than HARDLY_MOVES moves of an element are expected in a chain, given the values that the other
# unknowns have at its end, an element that did move did so while they had other values.
HARDLY_MOVES = 1e-3
# Other values of an element that together have a smaller probability than IMPROBABLE, given everything else,
# do not occur in a run of any usual length.
IMPROBABLE = 1e-9
# A chain is divided into STRETCHES intervals, and the intervals in which an element moved are counted: moves
# in clumps count once, and 1 interval in 10 is enough to tell a chain that stands still from one that moves.
STRETCHES = 10
# Log odds of a site at different states of the other unknowns count as equal if they differ by at most
# EQUAL_ODDS nats plus the share EQUAL_ODDS_SHARE of themselves, which may be rounding in 32 bits.
EQUAL_ODDS, EQUAL_ODDS_SHARE = 1e-3, 1e-5
# The log odds of two values of an element are compared at random states of the other unknowns. The comparison
# counts only if the values are possible in at least one of POSSIBLE_IN_ONE_OF states: else too few log odds
# are left to compare.
POSSIBLE_IN_ONE_OF = 4
INFINITE = 1e100  # no quantity of a model is as large as this; a draw beyond it has gone to infinity

# ---------------------------------------------------------------- ties
# The correlation from which two quantities count as tied: one explains 81 % of the variance of the other, and
# a step that moves one alone goes less than half as far.
CORRELATION_OF_TIES = 0.9

# ---------------------------------------------------------------- labels
# Two chains agree if the mean total variation distance of their labels is at most CHAINS_AGREE.
CHAINS_AGREE = 0.1
# A permutation of labels must at least halve the differences between draws, since the best of many
# permutations makes draws of any variable somewhat more alike.
LEFT_BY_PERMUTATION = 0.5
# With fewer sites than FEWEST_SITES, or FEWEST_SITES_PER_LABEL, some permutation of labels fits by chance.
FEWEST_SITES, FEWEST_SITES_PER_LABEL = 10, 3
# Two means of log densities count as equal if they differ by at most this many standard errors plus this many
# nats.
EQUAL_MEANS_ERRORS, EQUAL_MEANS_NATS = 4.0, 0.1
# The share of elements that must mix after labels are permuted: of hundreds of elements, a few do not mix by
# chance.
SHARE_THAT_MIXES = 0.95

# ---------------------------------------------------------------- the chi-square test
# The effective draws of each chain, and of each category, that a p-value needs: with fewer draws the
# distribution of the statistic is not chi-square (for the categories this is Cochran's rule).
FEWEST_EFFECTIVE_OF_P, FEWEST_EFFECTIVE_OF_CATEGORY = 50, 5
