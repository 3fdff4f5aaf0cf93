"""Organizations, and imports of them."""
