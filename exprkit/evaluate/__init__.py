"""Evaluation: ``Evaluator``, its checks of user input, losses and options.

In: a ``Population``, X and parameters of any kind.  Out: values, losses, derivatives; bytecode, PTX.

====================  ==================================================================
``evaluator``         ``Evaluator``: one population on one data set
``prepared_loss``     a loss against one target, for many sets of parameters
``losses``            what losses are made of: the sums of the backends
``loss_text``         losses of the user's own, put together with the expressions
``factors``           orthogonal factors of Jacobians
``compute``           backend, precision, type, threads and workers as one object
``options``           checks of the backends' options
``inputs``            checks of what the user gives, and its way to the backend
``tables``            columns of tables, matched to variables
``calibration``       what this machine takes, measured for ``backend="auto"``
``ranges``            intervals of values on a box of variables
``trace``             every part of an expression at one data point
``compiled``          a population as the GPU backends run it, bytecode and PTX, without a GPU
====================  ==================================================================
"""
