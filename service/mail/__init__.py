"""Mail: invitations, the only mail that the service sends, and their delivery."""
