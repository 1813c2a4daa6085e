"""Constraints that every schedule keeps anyhow, by which CP-SAT proves more."""
