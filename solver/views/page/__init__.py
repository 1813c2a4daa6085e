"""Results as one HTML page: tables that need no script, and a chart that a script draws."""
