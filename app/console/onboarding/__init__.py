"""The first screen of all, where nothing is configured."""
