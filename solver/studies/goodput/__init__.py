"""The goodput model, its fit to measurements and the search for the best batch."""
