"""How plans are drawn."""
