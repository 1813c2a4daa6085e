"""Schedules in PyTorch: run them on its pipeline runtime, and measure stages for instances."""
