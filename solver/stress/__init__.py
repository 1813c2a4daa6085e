"""How long schedules take when ops do not take what was planned."""
