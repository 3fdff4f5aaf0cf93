"""What the health screen draws."""
