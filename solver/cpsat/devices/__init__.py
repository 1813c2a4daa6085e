"""Some devices of a problem as a problem of their own, whose optimum is a lower bound."""
