"""One profile at work; and what every room uses: events, text, times, files."""
