"""Goodput: parameters, measurements and results as documents."""
