"""Published schedulers that decide while time goes by: DynaPipe's, for unequal micro-batches."""
