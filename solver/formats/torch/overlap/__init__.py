"""The overlap order of a compiled graph: read from Inductor, solved, verified, applied."""
