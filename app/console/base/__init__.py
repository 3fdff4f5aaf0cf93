"""The base of the app and of every screen, with the keys that all of them have."""
