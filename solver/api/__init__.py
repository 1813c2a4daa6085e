"""The library: one run of heuristics, bounds and exact search, every schedule checked."""
