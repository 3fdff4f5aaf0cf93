"""The key: from the environment, or from a command, which is run as seldom as possible."""

from pathlib import Path

import pytest

from service.agents.options import ModelAccess
from service.egress.key import ModelKey, NoKeyError
from tests.waiting import eventually


def key_of(**source: object) -> ModelKey:
    return ModelKey(ModelAccess.model_validate({"provider": "openai", **source}))


def test_a_command_is_run_again_only_for_a_key_that_was_refused(tmp_path: Path) -> None:
    """Of several requests with the same refused key, the first one replaces it for all."""
    calls = tmp_path / "calls"
    key = key_of(key_command=["sh", "-c", f"echo >> '{calls}'; echo key-$(wc -l < '{calls}')"])

    assert [key.get(refused) for refused in (None, None, "key-1", "key-1", "key-2")] == [
        *("key-1", "key-1", "key-2", "key-2", "key-3")
    ]


def test_a_key_that_no_header_can_carry_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line break at its end is left out; one inside is an error about the key. A refused one of a variable stays."""
    monkeypatch.setenv("K", "sk-1\n")
    whole = key_of(key_env="K")
    monkeypatch.setenv("K", "sk-1\nsk-2")
    broken = key_of(key_env="K")

    assert (whole.get(), whole.get("sk-1")) == ("sk-1", "sk-1")
    with pytest.raises(NoKeyError, match=r"the key in K .* set K to a valid key"):
        broken.get()


def test_a_command_that_fails_says_why() -> None:
    for source, why in (
        ("echo 'log in first' >&2; exit 3", "'sh' printed no key: log in first"),
        ("echo two words", "its output is not one word"),
        ("true", "its output is not one word"),
    ):
        with pytest.raises(NoKeyError, match=why):
            key_of(key_command=["sh", "-c", source]).get()
    with pytest.raises(NoKeyError, match="No such file or directory"):
        key_of(key_command=["/no/such/command"]).get()


def test_what_a_command_leaves_behind_is_ended_and_not_waited_for(tmp_path: Path) -> None:
    """It may hold the command's output open."""
    key = key_of(key_command=["sh", "-c", f"sleep 300 & echo $! > '{tmp_path}/pid'; echo sk-1"])

    assert key.get() == "sk-1"
    left = Path(f"/proc/{int((tmp_path / 'pid').read_text())}/stat")
    eventually(lambda: not left.exists() or "Z" in left.read_text(), "it has ended")
