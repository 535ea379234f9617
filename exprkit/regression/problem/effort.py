"""Effort: how many functions, rows, rounds and which share of the time each stage of a search may use.

In: nothing.  Out: one frozen dataclass per stage, each with its one instance; a test replaces the instance.

Every value has its unit beside it and, where it was measured, the source; one without a source was chosen, not
measured.  Time is counted work (``WorkCosts``), and shares are shares of a search's time limit.  ``laws.md`` is
``data/results/laws.md``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RowCounts:
    """Numbers of rows of the data that stages look at."""

    generations: int = 256  # rows, for the fits of generations
    templates: int = 1_000  # rows, for numbers inside of operators
    search: int = 10_000  # rows: more make a search slower, but tell no more of a formula than of its numbers


@dataclass(frozen=True)
class Pools:
    """Sizes of the pools of functions."""

    key_rows: int = 16  # rows at which two functions of a pool are compared
    min_rows: int = 6  # rows that tell two functions with two numbers from a coincidence
    host_sizes: tuple[int, ...] = (1_000, 30_000)  # functions of the pools before the last
    host_max: int = 300_000  # functions of the last pool
    device_sizes: tuple[int, ...] = (1_000_000, 20_000_000)  # functions of the pools on a GPU, after the host's
    device_max: int = 100_000_000  # functions of the last pool on a GPU


@dataclass(frozen=True)
class Exact:
    """Exact formulas: three functions, and sums of a few."""

    triples_share: float = 0.2  # of the time, the simplest forms first
    sums_share: float = 0.2  # of the time; a list of functions takes half a second (laws.md, exact sums)
    sum_functions: int = 1_500  # functions that sums are made of
    sum_rows: int = 32  # rows at which sums are compared with y
    max_gain: float = 10.0  # times the least loss so far, that a sum of these rows may leave before it is fitted


@dataclass(frozen=True)
class FewerVariables:
    """Searches with fewer variables: in units made of some, without power factors, in products of powers."""

    units_share: float = 0.6  # of the time
    max_unit_systems: int = 8  # sets of variables taken for units
    fitted_unit_systems: int = 2  # of them, the sets in which formulas are fitted as well
    fitted_functions: int = 300  # functions of pools for those fits
    reduction_share: float = 0.35  # of the time
    translations_share: float = 0.25  # of the time
    factors_share: float = 0.35  # of the time
    min_noise: float = 1e-4  # share of the root mean square of y that a reduction leaves, above which it is noise
    min_tokens: int = 5  # of ``maxsize``: pairs make all shorter formulas; for curves as well
    check_rows: int = 500  # rows at which a power factor is compared with the best formula so far
    max_error_ratio: float = 2.0  # of squared errors; <= 0.25 of true factors, 4 to 10 of a false one (laws.md)
    min_error: float = 1e-3  # share of the variance that any formula may be off by


@dataclass(frozen=True)
class Curves:
    """Shapes with several numbers inside."""

    share: float = 0.12  # of the time (laws.md, data without a known law)
    more_share: float = 0.23  # of the time, where a short formula explains most of y
    max_tokens: int = 15  # of that short formula
    max_unexplained: float = 0.1  # share of the variance; after 1.2 s 0.07 at most of 17 curves (laws.md)
    shapes_per_function: int = 3  # shapes of one kind for each function of the largest pool


@dataclass(frozen=True)
class Growth:
    """Formulas of the front with one function more."""

    first_share: float = 0.06  # of the time, before exact stages: 90 of 120 noisy laws reached the noise (laws.md)
    first_rounds: int = 12
    share: float = 0.3  # of the time
    long_share: float = 0.5  # of the time, where more is unexplained (laws.md, data without a known law)
    max_unexplained: float = 0.01  # share of the variance that a formula near y leaves
    rounds: int = 100
    functions: int = 400  # functions of a pool that are added; generations vary trees with as many
    fits_at_once: int = 64  # formulas fitted between two checks of the clock; of sums as well
    max_shortening: int = 2  # tokens that a formula may lose when it is simplified


@dataclass(frozen=True)
class Regressions:
    """Linear regressions on functions of a pool: single ones, sums and pairs."""

    rows: int = 128  # rows at which functions are regressed
    single_functions: int = 10_000  # functions tried alone, beside as many monomials
    sum_functions: int = 3_000  # functions of which terms are chosen, beside as many monomials
    match_functions: int = 3_000  # functions of which all products and sums of two are tried, times n_vars squared
    max_match_functions: int = 30_000
    match_rows: int = 256  # rows at which they are
    match_share: float = 0.3  # of the time
    matches: int = 4  # pairs of a form and size whose numbers are optimised
    quotient_functions: int = 300  # functions, and as many monomials, of which the simplest are terms of quotients
    functions_with_numbers: int = 16  # functions that have a number before them within an operator
    first_pair_functions: tuple[int, int] = (400, 150)  # the same before all that takes longer
    pair_functions: tuple[int, int] = (3_000, 1_000)  # functions of which all pairs are fitted; within an operator
    device_pair_functions: tuple[int, int] = (20_000, 10_000)  # the same on a GPU
    template_functions: int = 1_500  # functions that templates with a number inside choose from


@dataclass(frozen=True)
class Generations:
    """Genetic programming."""

    polish_period: int = 10  # generations between two polishes of the front
    max_offered: int = 24  # formulas of a generation that are simplified and offered to the front


@dataclass(frozen=True)
class Simplification:
    """Formulas of the front with fewer or simpler numbers."""

    rounds: int = 12
    final_share: float = 0.04  # of the time, kept for the chosen formula's numbers; Planck's law with 10 % noise
    min_improvement: float = 0.999  # share of a smaller formula's loss below which a larger one is polished
    max_exact_loss: float = 1e-18  # share of the loss of 0 below which a formula is nearly exact
    rounding: float = 1e-15  # share of a value that is no more than rounding
    best_formulas: int = 3  # formulas polished in a row: after every stage of noisy data, and in the end
    max_noisy_tokens: int = 30  # of those formulas; longer ones, as of surfaces, took 5 s (Friedman 1)


@dataclass(frozen=True)
class Noise:
    """When residuals count as noise."""

    max_unexplained: float = 0.3  # share of the variance (laws.md, data without a known law)
    min_loss: float = 1e-6  # share of the loss of 0 above which noise may be what is left
    max_lead: int = 8  # tokens by which the longest formula is longer than one that is as good
    max_gain: float = 1.05  # ratio of that one's loss to the least
    max_loss: float = 0.002  # share of the variance that the best formula leaves


@dataclass(frozen=True)
class WorkCosts:
    """Seconds that work counts as, so that decisions are the same on every machine and under any load.

    Measured on one core of an Intel Xeon and of an AMD EPYC (2026-11, two cores, other work on both).
    """

    combination: float = 2e-8  # s, of two functions of a pool at a row
    simplified_token: float = 3e-5  # s, of a formula that is simplified
    values: float = 5e-4  # s, of a call that evaluates formulas
    value: float = 2e-9  # s, of a token at a row
    fits: float = 1.5e-3  # s, of a call that fits formulas
    fit: float = 1e-4  # s, of a formula
    fit_value: float = 8e-9  # s, of a token of a formula that is fitted, at a row
    shape: float = 4e-4  # s, of a curve's shape fitted roughly, and the best in earnest
    single: float = 8e-9  # s, of a function alone at a row
    inner_value: float = 1e-7  # s, of an operator with a number inside at a row
    refinement: float = 1.5e-3  # s, of the number inside a template
    refinement_row: float = 1.5e-6  # s, of that at a row
    triples_check: float = 3e-3  # s, between two checks of the clock: three functions
    sums_check: float = 5e-3  # s, the same of exact sums, beside their terms
    reduction: float = 0.5  # s, of the groups that data depend on
    growth_round: float = 5e-3  # s
    growth_row: float = 2e-5  # s, of a round at a row


ROWS = RowCounts()
POOLS = Pools()
EXACT = Exact()
FEWER_VARIABLES = FewerVariables()
CURVES = Curves()
GROWTH = Growth()
REGRESSIONS = Regressions()
GENERATIONS = Generations()
SIMPLIFICATION = Simplification()
NOISE = Noise()
WORK = WorkCosts()
