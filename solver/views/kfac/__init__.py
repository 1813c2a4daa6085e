"""How K-FAC work is drawn."""
