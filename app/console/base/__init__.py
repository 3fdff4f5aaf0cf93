"""What every screen and the app stand on: the base of each, and the keys that all of them know."""
