"""The commands of git that talk to a code host: slow ones go on while they report progress."""

from pathlib import Path

import pytest

from service.execution.git import GitCommandError, GitRunner

SLOW = """#!/bin/sh
for part in 1 2 3 4 5 6; do sleep 0.5; printf 'Receiving objects: %s0%%\\r' $part >&2; done
echo done
"""
SILENT = """#!/bin/sh
printf 'Receiving objects: 10%%\\r' >&2
sleep 1000
"""


def runner(
    folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, told: list[str], limit_s: float = 1.5
) -> GitRunner:
    (folder / "git").write_text(source)
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return GitRunner(folder, limit_s, progress=told.append)


def test_a_slow_fetch_takes_as_long_as_it_reports_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice its time limit here; what it reports is passed on."""
    told: list[str] = []

    assert runner(tmp_path, monkeypatch, SLOW, told)("fetch", "url") == "done"
    assert told[0] == "Receiving objects: 10%"
    assert len(told) >= 4


@pytest.mark.parametrize(("command", "passes"), [("fetch", True), ("write-tree", False)])
def test_a_silent_command_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, *, passes: bool
) -> None:
    """Of a fetch the code host is the cause, which may pass; of a command without a host it is not."""
    with pytest.raises(GitCommandError) as raised:
        runner(tmp_path, monkeypatch, SILENT, [], 0.3)(command)

    assert raised.value.is_passing == passes


def test_a_login_in_an_address_is_no_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor as a setting's value: every user of the machine can read arguments."""
    shows = '#!/bin/sh\necho "$@"; env | grep GIT_CONFIG_KEY_0\n'
    url = "https://host/a.git"
    for words in (("fetch", url), ("-c", f"remote.origin.url={url}", "fetch", "origin")):
        given = [word.replace("//", "//u:p@") for word in words]
        told = runner(tmp_path, monkeypatch, shows, [], 30)(*given)

        assert " ".join(words) in told
        assert "u:p" not in told
        assert f"http.{url}.extraHeader" in told
