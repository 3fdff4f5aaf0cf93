"""The demo where bubblewrap does not work: its own scripts run all the same, and it says so."""

import shutil
from pathlib import Path

import pytest

from app.demo.service_process import DemoError, has_sandbox, start
from tests.demo.test_demo import EXECUTES_NOTHING, begun, environment
from tests.program import Program
from tests.service_process import command


def test_the_demo_runs_without_bubblewrap_and_says_so(tmp_path: Path) -> None:
    """On its first lines and in the service's status."""
    programs, folder = tmp_path / "programs", tmp_path / "demo"
    programs.mkdir()
    for name in ("git", "sh"):
        (programs / name).symlink_to(str(shutil.which(name)))
    given = environment(tmp_path) | {"PATH": str(programs)}
    demo = begun(Program(("demo", "--no-console", "--folder", str(folder)), given, code=EXECUTES_NOTHING))
    status = command(folder / "service", "status")
    said = demo.end()

    assert "Without a sandbox: bubblewrap is not installed or does not work here" in said
    assert [one["sandbox"] for one in status["workers"]] == ['none (switched off by sandbox = "none")']


def test_a_choice_in_the_settings_of_a_kept_demo_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it requires a sandbox, the service is started as it says, whether bubblewrap works or not."""
    chosen = '[execution]\nsandbox = "require"\n'
    (tmp_path / "service.toml").write_text(chosen)
    monkeypatch.setattr("app.demo.service_process.bubblewrap_works", lambda: False)
    monkeypatch.setattr("sys.executable", shutil.which("false"))  # What comes after it is not the fact.
    with pytest.raises(DemoError):
        start(tmp_path, tmp_path / "log")

    assert (tmp_path / "service.toml").read_text() == chosen
    assert has_sandbox(tmp_path)
