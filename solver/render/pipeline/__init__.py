"""How pipelines are drawn."""
