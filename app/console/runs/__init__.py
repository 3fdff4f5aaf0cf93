"""The Runs tab: finding runs, looking at one, and acting on one or many."""
