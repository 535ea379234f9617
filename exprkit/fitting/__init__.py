"""Fits: ``fit``, ``FitProblem``, their results, likelihoods and description lengths.

In: a ``Population``, X and y.  Out: ``FitResult``; covariances; description lengths.

======================  ==================================================================
``fit``                 ``fit``
``fit_problem``         ``FitProblem``: one population after another to the same data
``fit_result``          ``FitResult``; ``fit_file``: on disk
``fitted_expression``   one expression with its numbers
``models``              standard models by name and in texts, and ties between parameters
``starts``              where fits begin: as the user says, or by what the data show; bounds
``prior``               what is known of parameters beforehand, as further rows of the data
``groups``              parameters with a value for each category
``ranking``             what fits are ranked by, and which of many predict the same
``plot``                expressions beside the data
``finishing``           the last steps, by orthogonal factors of the Jacobian
``first_order``         Adam and L-BFGS, over any backend's gradients
``uncertainty``         intervals, bands, and which parameters cannot be told apart
``likelihood``          negative log-likelihoods and covariances
``observed``            covariances by a loss's curvature, and robust ones
``description_length``  accuracy against simplicity
======================  ==================================================================
"""
