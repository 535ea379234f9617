"""The last steps of fits of few expressions: in float64, by orthogonal factors of the Jacobian.

In: expressions, complete data, an objective and parameters.  Out: parameters at a minimum, and whether they are.

================  ==================================================================
``factors``       orthogonal factors of Jacobians, for these steps and covariances
``stationarity``  whether a step is short in units of the standard errors
``saddles``       starts beside where a loss is stationary, which is a minimum where they come back to it
``finish``        the steps
``orthogonal``    the steps where X has errors as well
``certify``       the same minimum in more digits than a float64 has
================  ==================================================================
"""
