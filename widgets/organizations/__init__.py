"""What the organizations' screen draws."""
