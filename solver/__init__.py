"""How it is scheduled: timing, checking, bounds, heuristics and the exact solver."""
