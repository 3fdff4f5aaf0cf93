"""The Runs tab: finding runs, and acting on one or many."""
