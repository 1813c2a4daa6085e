"""Pipelines: instances and their lowering to a `Problem`."""
