"""What the screens of profiles draw."""
