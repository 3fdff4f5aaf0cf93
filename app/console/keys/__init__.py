"""Keys and their actions: the key map, the help, the palette, and the user's own commands."""
