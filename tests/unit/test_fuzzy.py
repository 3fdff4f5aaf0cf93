"""Finding names by a few letters."""

from hypothesis import given
from hypothesis import strategies as st

from app.console.fuzzy import fuzzy

NAMES = ("acme/api", "acme/payment-service", "acme/web", "globex/api-gateway", "gitlab:acme/tools")


def best(query: str) -> list[str]:
    found = [(match.score, name) for name in NAMES if (match := fuzzy(query, name))]
    return [name for _, name in sorted(found, reverse=True)]


def test_letters_side_by_side_at_the_beginning_of_a_word_are_best() -> None:
    """In any case; a name that lacks a letter is not found."""
    assert best("API")[:2] == ["acme/api", "globex/api-gateway"]
    assert best("aps")[0] == "acme/payment-service"
    assert best("gate") == ["globex/api-gateway"]
    assert best("xyz") == []


@given(st.text(min_size=1, max_size=8), st.text(max_size=40))
def test_every_position_holds_its_letter(query: str, name: str) -> None:
    """In order, whatever the script."""
    match = fuzzy(query, name)
    if match is not None:
        assert list(match.found) == sorted(set(match.found))
        assert len(match.found) == len(query.casefold())
        folded = name.casefold() if len(name.casefold()) == len(name) else name
        assert [folded[at] for at in match.found] == list(query.casefold())


def test_a_long_name_of_one_letter_takes_no_time() -> None:
    """The number of ways to pick four of two hundred letters is never tried out."""
    assert fuzzy("aaaab", "a" * 200) is None
