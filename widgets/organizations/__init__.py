"""Organizations, and lists of them to import."""
