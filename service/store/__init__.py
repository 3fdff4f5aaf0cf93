"""The store: organizations, what they connected, and their runs, in one database named by its URL."""
