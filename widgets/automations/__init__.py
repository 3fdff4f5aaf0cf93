"""The widgets of the Automations tab."""
