"""The frame of every screen: header, tabs, keys and notices."""
