"""Published pipeline schedules, as orders of actions on each device."""
