"""The exact model: CP-SAT intervals with precedence, no-overlap and memory constraints."""
