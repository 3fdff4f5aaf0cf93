"""Notifications: what changed is told in few messages, over the routes that the user chose, until one took it."""
