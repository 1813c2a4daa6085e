"""Schedules and curves as figures of matplotlib, in the size of a paper's column."""
