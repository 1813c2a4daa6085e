"""Makespan over an amount: memory, micro-batches or chunks."""
