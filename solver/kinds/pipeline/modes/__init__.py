"""Pipelines whose activations may be kept, recomputed or offloaded: which, together with orders."""
