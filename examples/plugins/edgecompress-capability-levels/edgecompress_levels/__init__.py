"""A capability in one folder: a technique, a section of the report, and a command."""
