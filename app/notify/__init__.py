"""Notifications of what changed: each told once, by one process, through the channels the user chose."""
