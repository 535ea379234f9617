"""The explorer (``exprkit.explore``): a notebook widget for an expression, a population, a search and backends.

In: an expression and data.  Out: a widget.  Uses exprkit as its users do, and matplotlib for what it draws.

====================  ==============================================================================
``explore``           the widget: its panels, options and data, and what happens on a key or a click
``fit_panel``         sliders, the curve, residuals, losses, a fit
``inspectors``        tree, postfix, program, bytecode, PTX, SASS, derivatives: text, and the call for it
``population_panel``  many expressions: sorted, fitted, their front; ``table``: the computation
``search_panel``      a search for formulas of the data, live
``race``              backends on the same work, and the panel that shows it
``sources``           data and expressions to begin with, and the code that makes them
``drawings``          numbers to pictures; ``pages``: text, pictures and errors to HTML
``completion``        operators and columns inside strings, by Tab: ``%load_ext exprkit``
``jobs``              work in the background: a queue of short jobs, a bar for a long one
====================  ==============================================================================
"""
