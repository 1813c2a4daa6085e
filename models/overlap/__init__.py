"""Programs of kernels and collectives: the instance and what it lowers to."""
