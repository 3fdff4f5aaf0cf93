"""What a run did: its change, its review and its commits, from git or from the service's results."""
