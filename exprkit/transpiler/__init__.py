"""The transpiler: every structure of a population becomes PTX, and PTX machine code."""
