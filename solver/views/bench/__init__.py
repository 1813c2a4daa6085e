"""Reports over benchmark results as terminal tables, Markdown, CSV and one HTML page."""
