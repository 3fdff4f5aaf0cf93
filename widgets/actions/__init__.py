"""What the screens of actions draw."""
