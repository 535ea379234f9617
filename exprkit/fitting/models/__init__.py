"""Standard models, texts that call them, and ties between parameters.

In: names, texts, a population.  Out: expressions, populations of the parameters that are left to fit.

===============  ==================================================================
``library``      ``ek.models``: the models by name, and in texts
``models.csv``   their table
``ties``         parameters that others determine
===============  ==================================================================
"""
