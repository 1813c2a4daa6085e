"""Structure of a problem: holds, index order, memory requirements, and the timing of orders."""
