"""The explorer: expressions, populations and races, looked at in a notebook (``exprkit.explore``)."""
