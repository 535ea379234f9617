"""Measurements: the thesis's protocol, its figures, and the code behind the notebooks.

In: parameters of a notebook or a study.  Out: samples and records, figures, the tables of README.md and data/results.

=================  ==================================================================
``notebook``       guards a notebook's parameters
``workload``       expressions and data by name
``bench``          measures them, on a ``timed_device``, once ``agreement`` has compared results
``sweep``          many such runs
``records``        their files
``measured``       frames out of the files, for the next three
``figures``        pictures (``case_figures``: of case discussions), drawn by ``plots``
``tables``         tables of texts, for the pages in ``data/results/tables``
``readme``         writes them, and those of scripts, into the pages
``devices``        what more devices would gain
=================  ==================================================================
"""
