"""The Organizations tab: every attempt to create one, and many from a file."""
