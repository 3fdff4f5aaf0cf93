"""What the service sends without being asked: invitations by mail, and events to webhooks."""
