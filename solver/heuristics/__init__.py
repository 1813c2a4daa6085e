"""Priority rules, list scheduling and what improves a schedule; they know a `Problem` only."""
