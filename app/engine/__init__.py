"""The engine of one profile, and shared code of all rooms: events, text, times, files."""
