"""PipeFisher's timelines and schedules."""
