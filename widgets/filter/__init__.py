"""The filter above the run table."""
