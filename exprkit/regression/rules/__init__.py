"""Rules that formulas must obey: units, and constraints on operators.

In: what the user says of units and operators.  Out: ``FormulaRules``, which every stage of a search asks before it
makes a formula.

===============  ==============================================================
``units``        texts as "m/s^2", as exponents of the base units
``constraints``  what the user says of operators, checked
``shape``        signs of slopes and limits of values, proved by interval arithmetic
``groups``       units that some of the variables make
``factors``      variables of which y is a power, as units of the rest
``scalings``     products of powers on which data depend, by the gradients of a ``surrogate``
``translations``  differences and sums that stand for two variables each, likewise
``accident``     whether rows tell more than a formula that is exact at them
``admission``    both together: which combinations, trees and formulas may be
===============  ==============================================================
"""
