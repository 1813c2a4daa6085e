"""Parts of a schedule solved anew by CP-SAT while the order of everything else stays."""
