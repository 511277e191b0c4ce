"""Trees at a terminal: listed and drawn, and as files."""
