"""``ppsolve bench`` and its subcommands."""
