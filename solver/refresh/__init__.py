"""K-FAC work around a pinned pipeline: heuristics, exact search, check, results."""
