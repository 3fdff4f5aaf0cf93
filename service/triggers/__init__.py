"""Triggers: deliveries about pull requests and issues start runs if the repository has rules."""
