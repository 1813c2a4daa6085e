"""Instances and results of each kind."""
