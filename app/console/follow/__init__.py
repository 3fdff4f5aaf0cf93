"""Following runs to their end, and telling about them."""
