"""`runwarden doctor`: what an issue needs, and nothing that should not be in one."""

from tests.cli.conftest import CommandLine


def test_a_healthy_machine_is_reported_in_full_and_nothing_private(boarded: CommandLine) -> None:
    """Every part has its line; no token, address, home folder or name of a profile is in it."""
    report, told = boarded("doctor", "--json"), boarded("doctor")
    checks = {check["name"]: check for check in report.json()["checks"]}

    names = ["runwarden", "python", "libraries", "programs", "terminal", "configuration", "data folder", "service"]
    assert [*checks] == [*names, "sandbox"]
    assert checks["service"]["ok"]
    assert "answered in" in checks["service"]["found"]
    assert "textual 8." in told.out
    assert report.json()["ok"] == (report.code == 0)
    for secret in (boarded.token, boarded.base_url, str(boarded.home), "environment\n"):
        assert not any(secret in said.out + said.err for said in (report, told))
