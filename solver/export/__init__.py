"""Schedules and plans as files of training runtimes; what a runtime cannot say is refused."""
