"""What the automations' screen draws."""
