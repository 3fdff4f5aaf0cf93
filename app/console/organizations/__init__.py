"""The Organizations tab: attempts to create organizations, one at a time or from a file."""
