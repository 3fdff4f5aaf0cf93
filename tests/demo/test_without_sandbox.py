"""The demo where bubblewrap does not work: its own scripts run all the same, and it says so."""

import shutil
from pathlib import Path

from tests.demo.test_demo import EXECUTES_NOTHING, begun, environment
from tests.program import Program
from tests.service_process import command


def test_the_demo_runs_without_bubblewrap_and_says_so(tmp_path: Path) -> None:
    """On its first lines and in the service's status; a choice in the settings of a kept demo stays."""
    programs, folder = tmp_path / "programs", tmp_path / "demo"
    programs.mkdir()
    for name in ("git", "sh"):
        (programs / name).symlink_to(str(shutil.which(name)))
    given = environment(tmp_path) | {"PATH": str(programs)}
    demo = begun(Program(("demo", "--no-console", "--keep", "--folder", str(folder)), given, code=EXECUTES_NOTHING))
    status = command(folder / "service", "status")
    said = demo.end()

    assert "Without a sandbox: bubblewrap is not installed or does not work here" in said
    assert [one["sandbox"] for one in status["workers"]] == ['none (switched off by sandbox = "none")']

    (folder / "service" / "service.toml").write_text('[execution]\nsandbox = "require"\n')
    demo = begun(Program(("demo", "--no-console", "--folder", str(folder)), given, code=EXECUTES_NOTHING))
    status = command(folder / "service", "status")

    assert "Without a sandbox" not in demo.end()
    assert status["workers"][0]["sandbox"].startswith("missing: ")
