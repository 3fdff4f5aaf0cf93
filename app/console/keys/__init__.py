"""Keys and what they do: the key map, the help, the palette, and the user's own commands."""
