"""The inbox: items that need your attention."""
