"""Several services in one console: all at a glance, and from one to another."""
