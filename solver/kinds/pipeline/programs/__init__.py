"""Programs: what each rank of a pipeline runs, step by step, in PyTorch's words."""
