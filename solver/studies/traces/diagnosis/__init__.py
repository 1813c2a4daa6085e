"""The verdict on recorded runs: steps solved, changes computed, idle time explained."""
