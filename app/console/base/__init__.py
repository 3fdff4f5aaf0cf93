"""The base of every screen, with the keys that all of them have."""
