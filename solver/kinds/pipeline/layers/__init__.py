"""Pipelines whose layers are shared out: the split, what is recomputed, and the order of ops."""
