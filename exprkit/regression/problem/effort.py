"""Effort: how much each stage of a search does.

In: nothing.  Out: numbers of functions, rows and rounds, shares of the time, and what work counts.

    >>> from exprkit.regression.problem.effort import STAGES
    >>> STAGES
    (1000, 30000)
"""

POINTS = 16  # at which functions of a pool are told apart
FEWEST_POINTS = 6  # that tell two functions and two numbers from a coincidence
STAGES = (1_000, 30_000)  # functions of the pools before the last
LAST = 300_000
STAGES_ON_DEVICE = (1_000_000, 20_000_000)  # the same for pools on a GPU, which come after the first ones
LAST_ON_DEVICE = 100_000_000
FIRST_GROWTH, GROWN_FIRST = 0.06, 12  # of the time and rounds, for formulas that are grown before exact ones
EXPLAINED, BEST = 0.3, 3  # noise may be no more of the variance; after every stage so many formulas are polished then,
LONGEST = 30  # unless they are longer: what describes a surface has very many numbers
GROWTH, LONG_GROWTH = 0.3, 0.5  # of the time, for formulas that are grown, and where none is nearly y,
GROWN = 100  # and so many rounds of it at most,
FITTED_AT_ONCE = 64  # of which so many are fitted between two looks at the clock
THREE = 0.2  # of the time, for three functions: the forms are in the order of how simple they are
CURVES, MORE_CURVES = 0.12, 0.23  # the same for curves, and for more of them
SHORT = 15  # tokens of a formula that curves may be like
PROMISING, NEARLY_KNOWN = 0.1, 0.01  # where so much of the variance is not explained at most
GROUPED, MEASURES = 0.6, 8  # and for data in units of their own, of which there may be several,
SHAPES = 3  # of a kind of curves for a function of the pool: a small search looks at fewer
FACTORED, OF_PRODUCT = 0.35, 0.35  # and for those without variables of which y is a power, and those of one product
TOLD_ROWS, CONTRADICTED = 500, 2.0  # unless a formula is off by twice its error: by a quarter at most for laws;
TOLERATED = 1e-3  # share of the variance that any formula may be off by
SHORTEST = 5  # tokens of formulas that curves and stages with fewer variables are for: pairs make shorter ones
FITTED, IN_GROUPS = 2, 300  # of which so many are fitted to, with pools of so many functions: there are fewer variables
NESTED = 1_500  # functions that templates choose from
SINGLE = 10_000  # functions that are tried alone, beside as many monomials
SUMMED = 3_000  # functions of which terms are chosen, beside as many monomials
SIMPLE, SUMMED_ROWS, EXACT_SUMS = 1_500, 32, 0.2  # functions of exact sums, rows that tell them, share of the time
WITH_NUMBERS = 16  # functions that a number stands before within an operator
PAIRED, PAIRED_WITHIN = 3_000, 1_000  # functions of which all pairs are fitted; within an operator
PAIRED_ON_DEVICE = 20_000, 10_000
PAIRED_ROWS = 128  # at which
FITTED_ROWS = 256  # of the sample, for the fits of generations,
SOME_ROWS = 1_000  # for numbers inside of operators,
MANY_ROWS = 10_000  # and for those of the formulas of the front: more would keep a search from ending in time
BLOCKS = 400  # small functions that trees are varied with
SHORTER = 2  # tokens that a formula may have less once it is simplified
POLISHED = 10  # generations between two polishes of the front
MOST_OFFERED = 24  # formulas of a generation that are looked at closer
LONGER, NOT_BETTER, GOOD = 8, 1.05, 0.002  # when noise alone is left: tokens, ratio of losses, share of the variance
ROUNDS = 12  # of making formulas shorter
FINISH = 0.04  # of the time, for the numbers of the formula that is chosen
BETTER = 0.999  # share of the loss of what is smaller; above it a formula is not worth polishing
WORSE = 1.5  # ratio of losses at some rows beyond which a formula is not tried at all of very many
NOISY = 1e-6  # share of the loss of 0 above which noise may be what is left
TURNING = 1e-9  # share of the variance that a formula may leave which turns faster than the rows tell
NEARLY = 1e-18  # share of the loss of 0 below which a formula is nearly exact
UNSEEN = 1e-15  # share of a value that is no more than rounding

# What work counts, in seconds of one core of an Intel Xeon (2026-11, two cores, other work on both): shares of the time
# are shares of it, so that decisions are the same on every machine and under any load.
COMBINED = 2e-8  # a combination of a pool, at a row
FITTED_FORMULA, FITTED_ROW = 3e-4, 4e-7  # a formula that is fitted, and each of its rows
SHAPE = 4e-4  # a curve's shape, fitted roughly and the best in earnest
# between two looks of a stage:
LOOKED_UP, ADDED_UP, GROWN_ROUND, GROWN_ROW, FACTOR = 3e-3, 2e-2, 5e-3, 2e-5, 5e-2
