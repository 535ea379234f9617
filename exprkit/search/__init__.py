"""Exhaustive search: every function up to a size, fitted once and ranked.

In: X and y.  Out: a ``SearchResult``.

=====================  ===================================================================
``grammar``            leaves and operators, and what trees of a size are made of
``families``           functions of free parameters as values, in a normal form
``family_rules``       what an operator makes of them
``distinct``           the enumeration: size by size the functions that are new
``function_table``     the functions by number: their keys and families
``forms``              the trees of each function, and the shortest of them
``fingerprints``       the same hashes for any population
``goal``               what expressions are compared with, by which loss, and what ranks them
``best_fits``          fits from one start after the other, until two groups of starts end at the best loss
``exhaustive_search``  the arguments of ``exhaustive_search``, and their checks
``run``                the pipeline enumerate | fit | describe, and the ranking at its end
``search_result``      the ranking as tables and figures
``state_file``         how far a search is, on disk
=====================  ===================================================================
"""
