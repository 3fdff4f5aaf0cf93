"""Code hosts, well or not, now and over time."""
