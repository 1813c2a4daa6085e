"""Configurations of a training job: which are worth running, and what each one takes."""
