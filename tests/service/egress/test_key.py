"""The key: from the environment, or from a command, which is run as seldom as possible."""

from pathlib import Path

import pytest

from service.agents.options import ModelAccess
from service.egress.key import ModelKey, NoKeyError
from tests.waiting import eventually


def key_of(**source: object) -> ModelKey:
    return ModelKey(ModelAccess.model_validate({"provider": "openai", **source}))


def test_a_key_of_the_environment_stays_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the provider refuses it: there is no other."""
    monkeypatch.setenv("K", "sk-1")
    key = key_of(key_env="K")

    assert (key.get(), key.get("sk-1")) == ("sk-1", "sk-1")


def test_a_command_is_run_again_only_for_a_key_that_was_refused(tmp_path: Path) -> None:
    """Of several requests with the same refused key, the first one replaces it for all."""
    calls = tmp_path / "calls"
    key = key_of(key_command=["sh", "-c", f"echo >> '{calls}'; echo key-$(wc -l < '{calls}')"])

    assert [key.get(refused) for refused in (None, None, "key-1", "key-1", "key-2")] == [
        *("key-1", "key-1", "key-2", "key-2", "key-3")
    ]


def test_a_key_that_no_header_can_carry_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line break at its end is left out; one inside is an error about the key, before anything is sent."""
    monkeypatch.setenv("K", "sk-1\n")
    whole = key_of(key_env="K")
    monkeypatch.setenv("K", "sk-1\nsk-2")
    broken = key_of(key_env="K")

    assert whole.get() == "sk-1"
    with pytest.raises(NoKeyError, match=r"the key in K .* set K to a valid key"):
        broken.get()


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["sh", "-c", "echo 'log in first' >&2; exit 3"], "'sh' printed no key: log in first"),
        (["sh", "-c", "echo two words"], "its output is not one word"),
        (["sh", "-c", "true"], "its output is not one word"),
        (["/no/such/command"], "No such file or directory"),
    ],
)
def test_a_command_that_fails_says_why(command: list[str], why: str) -> None:
    """In its own last line, if it has one."""
    with pytest.raises(NoKeyError, match=why):
        key_of(key_command=command).get()


def test_what_a_command_leaves_behind_is_ended_and_not_waited_for(tmp_path: Path) -> None:
    """It may hold the command's output open."""
    key = key_of(key_command=["sh", "-c", f"sleep 300 & echo $! > '{tmp_path}/pid'; echo sk-1"])

    assert key.get() == "sk-1"
    left = int((tmp_path / "pid").read_text())
    eventually(
        lambda: not Path(f"/proc/{left}").exists() or "Z" in Path(f"/proc/{left}/stat").read_text(), "it has ended"
    )
