"""Finding names by a few letters."""

from hypothesis import given
from hypothesis import strategies as st

from app.console.sheets import fuzzy

NAMES = ("acme/api", "acme/payment-service", "acme/web", "globex/api-gateway", "gitlab:acme/tools")


def best(query: str) -> list[str]:
    found = [(match[0], name) for name in NAMES if (match := fuzzy(query, name))]
    return [name for _, name in sorted(found, reverse=True)]


def test_letters_side_by_side_at_the_beginning_of_a_word_are_best() -> None:
    """In any case; a name that lacks a letter is not found, and a long name of one letter takes no time."""
    assert best("API")[:2] == ["acme/api", "globex/api-gateway"]
    assert best("aps")[0] == "acme/payment-service"
    assert best("gate") == ["globex/api-gateway"]
    assert best("xyz") == []
    assert fuzzy("aaaab", "a" * 200 + "-b") is None
    assert fuzzy("aa-b", "a" * 200 + "-b") is not None


@given(st.text(min_size=1, max_size=8), st.text(max_size=40))
def test_every_position_holds_its_letter(query: str, name: str) -> None:
    """In order, whatever the script."""
    if (match := fuzzy(query, name)) is not None:
        assert list(match[1]) == sorted(set(match[1]))
        as_typed = len(name.lower()) != len(name)
        letters = [name[at] if as_typed else name[at].lower() for at in match[1]]
        assert "".join(letters) == (query if as_typed else query.lower())
