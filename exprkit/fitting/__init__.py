"""Fits as a user calls them.

In: a ``Population``, X and y.  Out: ``FitResult``; covariances; description lengths.

======================  ==================================================================
``fit``                 ``fit`` and ``FitResult``
``first_order``         Adam and L-BFGS, over any backend's gradients
``likelihood``          negative log-likelihoods and covariances
``description_length``  accuracy against simplicity
======================  ==================================================================
"""
