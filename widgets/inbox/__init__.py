"""What the inbox draws."""
