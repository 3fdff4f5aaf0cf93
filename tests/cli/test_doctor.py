"""`runwarden doctor` prints what an issue report needs, and nothing private."""

from tests.cli.conftest import CommandLine


def test_a_healthy_machine_is_reported_in_full_and_nothing_private(boarded: CommandLine) -> None:
    """Each part has a line, and none shows a token, an address, the home folder or a profile's name."""
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
