"""Mail: the one kind of message the service sends, and the ways out."""
