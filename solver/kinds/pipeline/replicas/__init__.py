"""Pipelines with replicas: published schedules on each, exchange, and answers within a step."""
