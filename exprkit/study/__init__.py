"""Measuring: the thesis's protocol, its figures, and what stands behind the notebooks."""
