"""Pipelines: the instance and what it lowers to."""
