"""Files and documents: strict fields, exact numbers, errors that name the place."""
