"""One run on the whole screen: what was said, what it wrote and changed, and its log."""
