"""Kernels as machine code: Python's own syntax tree to LLVM's text to an object file."""
