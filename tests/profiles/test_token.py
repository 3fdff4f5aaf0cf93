"""The sources of a token, and that it is never shown."""

import copy
import os
import pickle
import traceback
from pathlib import Path

import pytest

from app.profiles.token import (
    CommandToken,
    EnvToken,
    FileToken,
    KeyringToken,
    ReadToken,
    Token,
    TokenError,
    TokenSource,
)

SECRET = "tok-3e1f.A_b~+/="


def refusal(source: TokenSource, env: dict[str, str] | None = None) -> TokenError:
    with pytest.raises(TokenError) as caught:
        source.read(env or dict(os.environ))
    return caught.value


def test_a_token_is_never_displayed() -> None:
    """The token is not in repr, str, a format, or a traceback's arguments, and it cannot be pickled."""
    token = Token(SECRET)

    assert SECRET not in f"{token} {token!r} {[token]} {vars(Token)}"
    assert token.reveal() == SECRET
    for store in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            store(token)


def test_an_invalid_token_is_refused_without_repeating_it() -> None:
    """A header with such a token would fail, and the error would show the token."""
    for value in ("", "a b", "a\nb", "Bearer abc", "tök", "a\x00b", "a\x7f", "x" * 20_000):
        with pytest.raises(TokenError) as caught:
            Token(value)
        shown = "".join(traceback.format_exception(caught.value))
        assert not value or value not in shown
        assert caught.value.fix in str(caught.value)


def test_a_variable_is_read_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No child process inherits the token. A missing variable is named."""
    monkeypatch.setenv("MY_TOKEN", f" {SECRET}\n")

    token = EnvToken("MY_TOKEN").read(os.environ)

    assert token.reveal() == SECRET
    assert "MY_TOKEN" not in os.environ
    assert "RUNWARDEN_TOKEN" in str(refusal(EnvToken(), {"PATH": ""}))


def test_a_file_that_others_can_read_or_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the command that corrects it.

    Another user's file, a pipe or a folder is refused without waiting.
    """
    path = tmp_path / "token"
    path.write_text(SECRET + "\n")
    for mode in (0o640, 0o602):
        path.chmod(mode)
        assert f"chmod 600 {path}" in str(refusal(FileToken(path)))
    path.chmod(0o600)
    assert FileToken(path).read({}).reveal() == SECRET
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, said in (("pipe", "regular file"), (".", "regular file"), ("nothing", "cannot be read")):
        assert said in str(refusal(FileToken(tmp_path / name)))
    os_user = os.geteuid()
    if os_user == 0:
        os.chown(path, 4242, 4242)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os_user + 1)

    assert "another user" in str(refusal(FileToken(path)))


def test_a_command_is_run_without_a_shell(capfd: pytest.CaptureFixture[str]) -> None:
    """The command's output is the token; its arguments are passed unchanged, and its stderr is not shown."""
    argv = ("/bin/sh", "-c", 'echo noise >&2; printf "%s" "$1"', "sh", "$HOME;`id`")

    assert CommandToken(argv).read(dict(os.environ)).reveal() == "$HOME;`id`"
    assert capfd.readouterr().err == ""


def test_a_failed_token_command_reports_how() -> None:
    """The command's output is not repeated, since it may contain the token."""
    for argv, said in (
        (("/bin/sh", "-c", f"echo '{SECRET}'; exit 3"), "exited with status 3"),
        (("true",), "empty"),
        (("/nothing/here",), "cannot be run"),
    ):
        error = refusal(CommandToken(argv))
        assert said in str(error), argv
        assert SECRET not in str(error), argv


def test_a_read_token_is_reused_and_an_empty_keyring_names_the_fix() -> None:
    """A token that was read can be used again, unlike one that cannot be used; the fix is a command."""
    source = ReadToken(Token(SECRET))
    assert [source.read({}).reveal() for _ in range(2)] == [SECRET, SECRET]
    assert SECRET not in repr(source)
    assert "cannot" in str(refusal(ReadToken(TokenError("It cannot be sent.", fix="Choose another."))))
    assert "keyring" in refusal(KeyringToken("acme")).fix
