"""Triggers: deliveries about a pull request start runs if the repository has rules."""
