"""Pipelines as flows: micro-batches that pass the same positions, each with its own durations."""
