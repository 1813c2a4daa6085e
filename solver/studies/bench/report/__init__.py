"""Reports over benchmark results: figures in plain data classes, without a word of their looks."""
