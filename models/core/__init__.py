"""The integer problem, its schedules and results."""
