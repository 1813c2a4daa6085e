"""The commands of goodput."""
