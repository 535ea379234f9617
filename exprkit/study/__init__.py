"""Measurements: the thesis's protocol, its figures, and the code behind the notebooks.

In: parameters of a notebook or a study.  Out: samples and records, figures, the tables of the pages named README.md.

=================  ==================================================================
``notebook``       guards a notebook's parameters
``workload``       expressions and data by name
``bench``          measures them, on a ``timed_device``, once ``agreement`` has compared results
``sweep``          many such runs
``records``        their files
``measured``       tables out of the files, for the next four
``figures``        pictures (``case_figures``: of case discussions), drawn by ``plots``
``conclusions``    sentences: ``conclusions.md`` with its numbers
``readme``         the tables of pages named README.md
``devices``        what more devices would gain
=================  ==================================================================
"""
