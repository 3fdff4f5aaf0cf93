"""Partner organizations: attempts, invitations and imports."""
