"""Making foreign text printable."""

import re
from unicodedata import category

from hypothesis import given
from hypothesis import strategies as st

from app.engine.text import SafeText, safe_block, safe_text

JOINED = re.compile("(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])")
"""Joiners within a word or an emoji."""
UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
ANY = st.text(st.characters(codec=None, categories=None), max_size=700)


@given(ANY, st.integers(1, 600))
def test_safe_text_is_always_printable(text: str, limit: int) -> None:
    """Repeating it changes nothing, and only surplus marks disappear. The lines of a block are safe, too."""
    safe, whole = safe_text(text, limit=limit), safe_text(text, limit=1_000)
    marks = sum(category(character).startswith("M") for character in text)

    assert isinstance(safe, SafeText)
    assert not {category(character) for character in JOINED.sub("", safe)} & UNPRINTABLE
    assert len(safe) <= limit
    assert safe_text(safe, limit=limit) == safe
    assert len(text) - marks <= len(whole) <= len(text)
    for line in safe_block(text):
        assert isinstance(line, SafeText)
        assert not {category(character) for character in JOINED.sub("", line)} & UNPRINTABLE


def test_control_characters_become_placeholders() -> None:
    """Control characters become pictures or placeholders; printable characters stay."""
    for text, safe in (
        ("grüße ✓ 日本 😀", "grüße ✓ 日本 😀"),
        ("\x1b[2Jgone", "␛[2Jgone"),
        ("a\x00b\x7fc\x9bd", "a␀b␡c\N{REPLACEMENT CHARACTER}d"),
        ("a\tb\nc", "a␉b␊c"),
        ("user\u202egnp.exe", "user\N{REPLACEMENT CHARACTER}gnp.exe"),
        ("a\u200bb\ud800", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"),
        *((text, text) for text in ("🧑\u200d💻", "🏳️\u200d🌈", "\u0645\u06cc\u200c\u062e", "क्\u200dष")),
        *((text, text.replace(text[1], "\N{REPLACEMENT CHARACTER}")) for text in ("a\u200db", "🧑\u200c💻", "é\u200d")),
        ("e" + "\u0301" * 9 + "f", "e" + "\u0301" * 4 + "f"),
        ("[/nope] [@click=app.quit()]x :smile:", "[/nope] [@click=app.quit()]x :smile:"),
    ):
        assert safe_text(text) == safe, text


def test_a_cut_is_visible_and_a_block_is_bounded() -> None:
    """The last character shows that text was cut. All three line ends divide a block, and nothing else does."""
    assert safe_block("a\r\nb\rc\n\td\u2028e") == ("a", "b", "c", "    d\N{REPLACEMENT CHARACTER}e")
    assert safe_block("") == ("",)
    assert (safe_text("abcdef", limit=4), safe_text("abcd", limit=4)) == ("abc…", "abcd")
    assert len(safe_text("x" * 10_000_000)) == 500
    assert safe_block("a\n" * 50, lines=3) == ("a", "a", "…")
    assert sum(len(line) for line in safe_block("y" * 100_000, limit=100)) == 100
    assert len(safe_block("\n" * 1_000_000)) == 1_000


def test_every_character_of_text_is_printable() -> None:
    """Every character of the planes with text and of the tag plane is tested."""
    for first in (*range(0, 0x10000, 4096), 0xE0000):
        characters = "".join(map(chr, range(first, first + 4096)))
        assert not {category(each) for each in safe_text(characters, limit=5_000)} & UNPRINTABLE, hex(first)
