"""Limits of random durations."""

MOST_JITTER = 10.0
"""Largest coefficient of variation: beyond it a few draws out of thousands decide every mean."""
