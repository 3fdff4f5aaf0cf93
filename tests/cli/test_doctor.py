"""`runwarden doctor`: what an issue needs, and nothing that should not be in one."""

from pathlib import Path
from typing import Any

from tests.cli.conftest import CommandLine


def found(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The checks by name."""
    return {check["name"]: check for check in report["checks"]}


def test_a_healthy_machine_is_reported_in_full_and_nothing_private(boarded: CommandLine) -> None:
    """Every part has its line; no token, address, home folder or name of a profile is in it."""
    report, told = boarded("doctor", "--json"), boarded("doctor")
    checks = found(report.json())

    names = ["runwarden", "python", "libraries", "programs", "terminal", "configuration", "data folder", "service"]
    assert [*checks] == [*names, "sandbox"]
    assert checks["service"]["ok"]
    assert "answered in" in checks["service"]["found"]
    assert "textual 8." in told.out
    assert report.json()["ok"] == (report.code == 0)
    for secret in (boarded.token, boarded.base_url, str(boarded.home), "environment\n"):
        assert not any(secret in said.out + said.err for said in (report, told))


def test_what_is_wrong_has_its_fix(lone: CommandLine, tmp_path: Path) -> None:
    """Exit code 1, and the other checks are still there. That nothing is configured yet is no fault."""
    for text, name, fix in (
        ("[poll]\nruns_s = 'often'\n", "configuration", "runwarden config check"),
        ("[profiles.a]\nbase_url = 'http://127.0.0.1:9/v1'\ntoken_file = 'none'\n", "service", "token check"),
    ):
        (config := tmp_path / "config.toml").write_text(text)
        unset = {"RUNWARDEN_BASE_URL": "", "RUNWARDEN_TOKEN": ""}
        done = lone("--config", str(config), "doctor", "--json", **unset)
        checks, new = found(done.json()), found(lone("doctor", "--json", **unset).json())
        assert done.code == 1, text
        assert (checks[name]["ok"], fix in checks[name]["fix"], checks["python"]["ok"]) == (False, True, True), text
        assert (new["configuration"]["ok"], new["configuration"]["fix"], "service" in new) == (True, "", False), text
        assert new["configuration"]["found"] == "environment only, 0 profiles", text
