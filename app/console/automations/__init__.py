"""The Automations tab."""
