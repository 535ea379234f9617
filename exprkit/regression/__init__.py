"""Symbolic regression."""
