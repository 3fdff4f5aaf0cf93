"""What `make bench` measures: ratios within one run, never a figure to hold a test against."""
