"""Notifications: changes in few messages, over the user's routes, until one takes them."""
