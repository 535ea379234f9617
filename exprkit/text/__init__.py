"""Conversion of text and SymPy to tokens and back, without Python objects per expression.

In: strings, SymPy, the table.  Out: tokens in postfix order (``tokens``), and what users read.

===========================  ==================================================================
``tokens``                   what a token is, and how many there may be
``reader``                   texts to tokens, by way of ``shunting_yard`` (compiled), ``decimals``
``names``, ``parse_errors``  what users call variables; what is wrong with a text
``printer``, ``notation``    tokens to text and LaTeX
``listing``                  tokens as cells, and as a tree of lines
``sympy_bridge``             tokens to SymPy and back
===========================  ==================================================================
"""
