"""Overlap of compute and communication: timing of program orders, and rules that make orders."""
