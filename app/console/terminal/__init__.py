"""The terminal around the console: its earliest picture, its signals, its title, its colours."""
