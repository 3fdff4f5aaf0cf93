"""What stands around every room: header, tabs, keys, and what is said of troubles."""
