"""Traces of the PyTorch profiler (Kineto): Chrome JSON, plain or gzipped, one file per rank."""
