"""`[repositories]` defines each repository's address, and excludes addresses that git must not get."""

from pathlib import Path

import pytest

from app.profiles import ConfigError
from app.profiles.load import address_of, parse
from storage.records import Repository


def addresses(tmp_path: Path, *lines: str) -> tuple:
    return parse(tmp_path / "config.toml", "[repositories]\n" + "\n".join(lines)).repositories


def test_the_most_specific_pattern_gives_the_address(tmp_path: Path) -> None:
    """A name beats a pattern and a long pattern a short one, in any order; case is ignored, as by code hosts."""
    entries = addresses(
        tmp_path,
        '"*" = "https://git.example/{path}.git"',
        '"acme/*" = "git@github.com:acme/{repo}.git"',
        '"Acme/API" = "./checkouts/api"',
        '"forgejo:*" = "https://git.acme.example/{owner}/{repo}.git"',
        '"gitlab:*" = "ssh://git@gitlab.example:22/{group}/{project}.git"',
    )
    found = {
        name: address_of(entries, Repository.parse(name))
        for name in ("acme/api", "acme/web", "else/x", "gitlab:a/b/c", "forgejo:a/b", "sr.ht:a/b")
    }

    assert found == {
        "acme/api": str(tmp_path / "checkouts/api"),
        "acme/web": "git@github.com:acme/web.git",
        "else/x": "https://git.example/else/x.git",
        "gitlab:a/b/c": "ssh://git@gitlab.example:22/a/b/c.git",
        "forgejo:a/b": "https://git.acme.example/a/b.git",
        "sr.ht:a/b": None,
    }


def test_an_unsafe_git_address_is_refused(tmp_path: Path) -> None:
    """Such an address is refused with its line when the file is read."""
    for address in (
        *("--upload-pack=touch x", "-oProxyCommand=x", "ext::sh -c x", "fd::17", "ftp://host/x"),
        *("https://user:secret@host/x", "https://{owner}/x", "https://-x/y", "git@host:-x", "file://host/x"),
        *("relative/path", "https://host/{name}", "https://host/{path", "https://host/x\\u001b[2J", ""),
    ):
        with pytest.raises(ConfigError) as caught:
            addresses(tmp_path, f'"acme/*" = "{address}"')
        assert (caught.value.line, caught.value.key) == (2, "repositories.acme/*"), address


def test_a_hostile_name_gives_no_address(tmp_path: Path) -> None:
    """A hostile name gives no address, unless it is written out in the configuration."""
    entries = addresses(tmp_path, '"other:*" = "https://git.example/{path}.git"', '"other:a/b c" = "/srv/b"')
    assert address_of(entries, Repository.of("other", {"path": "a/b c"})) == "/srv/b"
    for path in ("../../etc", "a/..", "-x/y", "a/--upload-pack=x", "a/$(x)", "a/b\nc", "a/b:c", "a//b"):
        with pytest.raises(ValueError, match="no address is made of such a name"):
            address_of(entries, Repository.of("other", {"path": path}))
