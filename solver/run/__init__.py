"""One run: what is known, the table of steps, and the walk through it."""
