"""The problem of a search: its data, its loss, and how much work may be done.

In: X, y, weights, a loss.  Out: what all stages read and none changes.

==========  ==================================================================
``rows``  the distinct rows of the data
``goal``    the loss by which formulas are fitted and ranked
``noise``   whether what a formula leaves of y is noise
``effort``  the constants of the stages: functions, rows, rounds, shares of time
==========  ==================================================================
"""
