"""Makespans of schedules when durations differ from the plan."""
