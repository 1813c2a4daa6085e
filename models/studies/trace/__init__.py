"""Recorded runs as one neutral table of ops."""
