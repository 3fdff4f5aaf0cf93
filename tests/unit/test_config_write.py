"""Writing the configuration: what was there stays, what is added is read back, and no other user can read it."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.profiles import ConfigError, Profile, load
from app.profiles.token import CommandToken, EnvToken, FileToken, KeyringToken, Token, TokenSource
from app.profiles.write import add_profile, keep_token, name_problem

ADDRESS = "https://api.example.com/v1"
line = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x00"), min_size=1, max_size=30)
sources = st.one_of(
    st.builds(EnvToken, line.filter(str.strip)),
    st.builds(KeyringToken, line.filter(str.strip)),
    st.builds(CommandToken, st.lists(line, min_size=1, max_size=3).map(tuple)),
)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_first_profile_comes_after_the_commented_example(tmp_path: Path) -> None:
    """One file, its folder made on the way, with every key still explained in it."""
    file = tmp_path / "new" / "config.toml"
    add_profile(file, Profile("acme", ADDRESS, FileToken(Path("acme.token")), read_only=True))
    profile = load(file, {}).profile()

    assert (profile.name, profile.base_url, profile.read_only) == ("acme", ADDRESS, True)
    assert profile.token == FileToken(file.parent / "acme.token")
    assert "#default_profile" in file.read_text()
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    assert list(file.parent.iterdir()) == [file]


def test_what_was_there_stays(tmp_path: Path) -> None:
    """Comments, order and values; through a link to where the file really is."""
    file, link = tmp_path / "dotfiles.toml", tmp_path / "config.toml"
    before = '# mine\n[console]\ntheme = "runwarden-light" # soft\n'
    file.write_text(before)
    link.symlink_to(file)
    add_profile(link, Profile("acme", ADDRESS, EnvToken("ACME")))

    assert link.is_symlink()
    assert file.read_text().startswith(before.rstrip())
    assert load(link, {}).console.theme == "runwarden-light"
    assert mode(file) == 0o600


@settings(max_examples=5)
@given(
    name=line.map(str.strip).filter(lambda name: name_problem(name) is None), source=sources, read_only=st.booleans()
)
def test_any_profile_is_read_back_as_it_was_given(
    tmp_path_factory: pytest.TempPathFactory, *, name: str, source: TokenSource, read_only: bool
) -> None:
    """Whatever is in its name, its variable or its command."""
    file = tmp_path_factory.mktemp("config") / "config.toml"
    add_profile(file, Profile(name, ADDRESS, source, read_only))
    profile = load(file, {}).profile(name)

    assert (profile.name, profile.token, profile.read_only) == (name, source, read_only)


@pytest.mark.parametrize(
    "before",
    ["this is no TOML", f'[profiles.acme]\nbase_url = "{ADDRESS}"\n', "[poll]\nruns_s = 0\n", "profiles = 1\n"],
)
def test_a_file_that_would_not_be_read_back_is_left_alone(tmp_path: Path, before: str) -> None:
    """A mistake that was there, or the same profile twice: said with the file's own name, and nothing is changed."""
    file = tmp_path / "config.toml"
    file.write_text(before)
    with pytest.raises(ConfigError) as refused:
        add_profile(file, Profile("acme", ADDRESS, EnvToken()))

    assert refused.value.file == file
    assert file.read_text() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """A file where a folder should be; the same for the token's own file."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be read"):
        add_profile(tmp_path / "file" / "config.toml", Profile("acme", ADDRESS, EnvToken()))
    with pytest.raises(ConfigError, match="cannot be written"):
        keep_token(tmp_path / "file", "acme", Token("secret"))


def test_a_token_is_kept_in_a_new_file_of_its_own(tmp_path: Path) -> None:
    """Readable by its owner alone; an existing file of that name is another token and is left alone."""
    assert [name for name in ("", "  ", "environment", "x" * 41, " acme", "a\nb") if not name_problem(name)] == []
    old = os.umask(0)
    try:
        first = keep_token(tmp_path / "here", "Acme & Söhne", Token("secret-1"))
        second = keep_token(tmp_path / "here", "acme s hne", Token("secret-2"))
    finally:
        os.umask(old)

    assert (first.name, second.name) == ("acme-s-hne.token", "acme-s-hne-2.token")
    assert (first.read_text(), second.read_text()) == ("secret-1\n", "secret-2\n")
    assert (mode(first), mode(second), mode(first.parent)) == (0o600, 0o600, 0o700)
