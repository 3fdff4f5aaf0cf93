"""Text as SQLite can hold it."""


def storable(text: str) -> str:
    """The text, with `?` in place of lone surrogates, which have no UTF-8 and which SQLite refuses."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")
