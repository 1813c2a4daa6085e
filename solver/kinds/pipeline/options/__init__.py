"""Pipelines whose ops may run as one, or otherwise: bounds, and searches over what is chosen."""
