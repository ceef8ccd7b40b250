"""report.json, its sections and its faces; comparison, gates, history."""
