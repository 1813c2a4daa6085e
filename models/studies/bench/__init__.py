"""Records of benchmark runs: the lines of a file of results."""
