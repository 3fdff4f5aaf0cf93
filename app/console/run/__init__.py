"""One run on the full screen: its conversation, review, changes and log."""
