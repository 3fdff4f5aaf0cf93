"""Mail: invitations, the only mail the service sends, and how they are delivered."""
