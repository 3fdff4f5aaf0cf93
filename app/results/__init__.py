"""The results of a run: its change, its review and its commits, from git or from the service."""
