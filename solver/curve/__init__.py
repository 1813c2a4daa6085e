"""Makespans over memory, micro-batches or chunks, one run for all points."""
