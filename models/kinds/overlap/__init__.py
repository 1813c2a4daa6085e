"""Programs of kernels and collectives: instances and their lowering to a `Problem`."""
