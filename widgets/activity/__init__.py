"""The activity log: writes and polls."""
