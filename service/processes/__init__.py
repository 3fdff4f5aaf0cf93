"""The processes of the service, their common code, and the back-up, which excludes them."""
