"""Traces of recorded runs: readers of their formats, replay, and fits."""
