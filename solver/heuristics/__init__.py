"""Priority rules, list scheduling and improvement of schedules, for any `Problem`."""
