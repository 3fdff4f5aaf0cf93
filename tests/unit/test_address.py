import pytest

from app.profiles.values import base_address


def test_an_address_has_one_normal_form() -> None:
    """Case, blanks and a trailing slash make no difference, and the normal form is its own."""
    for written, normal in {
        "https://API.Example.com/v1/": "https://api.example.com/v1",
        " https://api.example.com:8443/a/v1 ": "https://api.example.com:8443/a/v1",
        "HTTPS://api.example.com": "https://api.example.com",
        "http://localhost:8400/v1": "http://localhost:8400/v1",
        "http://[::1]:80/v1": "http://[::1]:80/v1",
    }.items():
        assert base_address(written) == base_address(normal) == normal


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("http://api.example.com/v1", "in the clear"),
        ("http://0.0.0.0/v1", "in the clear"),
        ("http://2130706433/v1", "in the clear"),
        ("ftp://api.example.com", "https://"),
        ("", "https://"),
        ("https://ada:secret@api.example.com/v1", "no user"),
        ("https://@api.example.com/v1", "no user"),
        ("https://api.example.com/v1?x=1", "no query"),
        ("https://api.example.com/a/../v1", "segment"),
        ("https://api.example.com/a//v1", "segment"),
        ("https://api.example.com:99999/v1", "not a valid address"),
        ("https://[::1/v1", "not a valid address"),
        ("https://exa\nmple.com/v1", "blanks"),
        ("https://bücher.example/v1", "xn--"),
        ("https://" + "a" * 70 + ".example/v1", "host name"),
        ("https://a..b/v1", "host name"),
    ],
)
def test_an_address_that_could_lead_the_token_astray_is_refused(written: str, reason: str) -> None:
    """The message says which rule it breaks, and never repeats a password."""
    with pytest.raises(ValueError, match=reason) as caught:
        base_address(written)

    assert "secret" not in str(caught.value)
