"""The Organizations room: every attempt to create one, and many from a file."""
