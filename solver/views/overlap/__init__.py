"""How programs of kernels and collectives are drawn."""
