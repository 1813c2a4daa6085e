"""What notebooks show of results, plans, curves and instances: static HTML and data frames."""
