"""Inner loops as plain functions on arrays, compiled where that pays."""
