"""Tools for coding assistants (Model Context Protocol)."""
