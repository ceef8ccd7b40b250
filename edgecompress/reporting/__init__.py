"""report.json, its sections and renderings; comparison, gates, history."""
