"""Differential equations from trajectories: x' = f(x, u, t), or x'' = f(x, x', u, t).

In: states measured at times.  Out: an equation for each state, in the conventions of pysindy.

================  =============================================================================
``trajectories``  measured states, smoothed, with their derivatives
``integration``   right-hand sides integrated, and their numbers fitted to the states
``weak_form``     sums of monomials by integrals against test functions
``terms``         monomials, and formulas with a term less
``choice``        the formulas that describe the states shortest, with terms left out, and that forecast
``invariants``    what right-hand sides conserve
``regressor``     ``DynamicsRegressor``: a search per equation, and what is asked of the equations
================  =============================================================================
"""
