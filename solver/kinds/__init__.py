"""What a kind of instance is, and how one instance of it is solved; knows no kind by name."""
