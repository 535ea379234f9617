"""Text, SymPy and printing: what people write and read, to and from the postfix form."""
