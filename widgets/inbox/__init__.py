"""The widgets of the inbox."""
