"""The widgets of the Health tab."""
