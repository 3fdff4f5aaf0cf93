"""Several services in one console: an overview, and switching between them."""
