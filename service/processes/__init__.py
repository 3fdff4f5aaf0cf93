"""The processes of the service, what they share, and the back-up, which excludes them."""
