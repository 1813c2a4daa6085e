"""Instances made from a few parameters."""
