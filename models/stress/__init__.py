"""What a stress test of schedules reports."""
