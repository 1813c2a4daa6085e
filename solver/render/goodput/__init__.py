"""How goodput is drawn."""
