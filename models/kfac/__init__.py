"""K-FAC work in pipelines: instances, timelines, refresh patterns and what they lower to."""
