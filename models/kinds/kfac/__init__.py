"""K-FAC work in pipelines: instances, timelines, refresh patterns and their problems."""
