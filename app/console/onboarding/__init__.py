"""The first start, when nothing is configured."""
