"""Measuring: the thesis's protocol, its figures, and what stands behind the notebooks.

In: parameters of a notebook or a study.  Out: samples and records, figures, the tables of the pages named README.md.
``workload`` makes expressions and data, ``bench`` measures them on a ``timed_device`` once ``agreement`` has compared
results, ``records`` keeps the files, ``sweep`` runs many; of the files ``measured`` makes tables, ``plots`` and
``figures`` pictures, ``conclusions`` sentences, ``readme`` pages.  ``notebook`` guards parameters.
"""
