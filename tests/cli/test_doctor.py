"""`runwarden doctor`: what an issue needs, and nothing that should not be in one."""

from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine, Inside


def found(report: dict[str, object]) -> dict[str, dict[str, object]]:
    """The checks by name."""
    checks = report["checks"]
    assert isinstance(checks, list)
    return {check["name"]: check for check in checks}


def test_a_healthy_machine_is_reported_in_full_and_nothing_private(boarded: CommandLine) -> None:
    """As JSON and as text: every part has its line, and the service answered.

    No token, address, home folder or name of a profile is in it.
    """
    report = boarded("doctor", "--json")
    told = boarded("doctor")
    checks = found(report.json())

    names = ["runwarden", "python", "libraries", "programs", "terminal", "configuration", "data folder", "service"]
    assert [*checks] == [*names, "sandbox"]
    assert checks["service"]["ok"]
    assert "answered in" in str(checks["service"]["found"])
    assert "textual 8." in told.out
    assert report.json()["ok"] == (report.code == 0)
    for secret in (boarded.token, boarded.base_url, str(boarded.home), "environment\n"):
        assert not any(secret in said.out + said.err for said in (report, told))


@pytest.mark.parametrize(
    ("text", "name", "fix"),
    [
        ("[poll]\nruns_s = 'often'\n", "configuration", "runwarden config check"),
        ("[profiles.a]\nbase_url = 'http://127.0.0.1:9/v1'\ntoken_file = 'none'\n", "service", "token check"),
    ],
)
def test_what_is_wrong_has_its_fix(tmp_path: Path, text: str, name: str, fix: str) -> None:
    """Exit code 1, and the other checks are still there."""
    (config := tmp_path / "config.toml").write_text(text)
    done = Inside(tmp_path)("--config", str(config), "doctor", "--json", RUNWARDEN_BASE_URL="", RUNWARDEN_TOKEN="")
    checks = found(done.json())

    assert done.code == 1
    assert (checks[name]["ok"], fix in str(checks[name]["fix"])) == (False, True)
    assert checks["python"]["ok"]


def test_a_newcomer_needs_no_configuration(tmp_path: Path) -> None:
    """Nothing is configured yet, which is no fault."""
    checks = found(Inside(tmp_path)("doctor", "--json", RUNWARDEN_BASE_URL="", RUNWARDEN_TOKEN="").json())

    assert checks["configuration"] == {
        "name": "configuration",
        "ok": True,
        "found": "environment only, 0 profiles",
        "fix": "",
    }
    assert "service" not in checks
