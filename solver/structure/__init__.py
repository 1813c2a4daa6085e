"""What a problem implies: holds, index order, memory needs, and the timing of orders."""
