"""How sure a fit is of its parameters and predictions.

In: a ``FitResult`` of one expression.  Out: tables of pandas and figures of Matplotlib.

==================  ===========================================================================
``minimum``         a fit's data, loss and least value; fits of many copies of it as one call
``intervals``       intervals of parameters: by the delta method, by profiles, by bootstrap
``observed``        covariances by a loss's curvature, and those that assume no likelihood
``predictions``     bands of predictions
``average``         more than one formula: weights, and bands of what they predict together
``report``          a text about the fit, and a figure of what may be wrong
``words``           which parameters cannot be told apart
==================  ===========================================================================
"""
