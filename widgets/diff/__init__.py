"""A change, file by file and line by line."""
