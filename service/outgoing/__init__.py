"""Outgoing messages of the service: invitations by mail, and events to webhooks."""
