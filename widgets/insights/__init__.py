"""What the insights' screen draws."""
