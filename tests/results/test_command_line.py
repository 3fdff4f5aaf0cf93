"""`runs diff`, `review`, `apply`, `checkout` and `open` lead from a listed run to its repository."""

from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.lab import Lab
from tests.results.repository import Origin, git

REVIEW = b"# Review\n\n### `code.py`\n\n- **major** line 2: \x1b]0;title\x07wrong\n"


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    origin = Origin(tmp_path / "host")
    files = {"code.py": b"\x1b[2Jdef f():\n\treturn 2\n", "reviews/r\udcff.md": REVIEW, 'od"d\nname': b"x"}
    origin.commit("agent/x", files, mark="run_01 turn 1")
    return origin


@pytest.fixture
def cli(tmp_path: Path, lab: Lab, origin: Origin) -> CommandLine:
    lab.put("run_01", "completed", created=0, updated=5, branch_name="agent/x")
    config = tmp_path / "config.toml"
    config.write_text(
        f'[repositories]\n"acme/*" = "{origin.bare.parent}/origin.git"\n'
        '[console]\nrun_url = "https://example.com/{repository}/{branch}/{run_id}"\n'
    )
    return CommandLine(tmp_path, lab.base_url, more={"RUNWARDEN_CONFIG": str(config)})


def test_a_diff_is_exact_through_a_pipe(cli: CommandLine, origin: Origin, tmp_path: Path) -> None:
    """The diff is exact through a pipe, with notes on stderr."""
    git(tmp_path, "clone", "--quiet", str(origin.bare), "mine")
    process = CommandLine(cli.home, cli.base_url, more=cli.more).begin("runs", "diff", "run_01")
    out, err = process.communicate()
    (tmp_path / "patch").write_bytes(out.encode())
    git(tmp_path / "mine", "apply", str(tmp_path / "patch"))

    assert (tmp_path / "mine/code.py").read_bytes() == (origin.work / "code.py").read_bytes()
    assert err.startswith("From git, since merge base with main (")


def test_a_change_is_applied_and_a_branch_checked_out(cli: CommandLine, origin: Origin, tmp_path: Path) -> None:
    """The commands use the checkout of -C, and refuse to run twice.

    Another repository's checkout needs an option, which the error names.
    """
    git(tmp_path, "clone", "--quiet", str(origin.bare), "mine")
    where = ("-C", str(tmp_path / "mine"))
    checked = [cli("runs", "checkout", "run_01", *where) for _ in range(2)]
    applied = [cli("runs", "apply", "run_01", *where, "--json") for _ in range(2)]
    git(tmp_path / "mine", "remote", "set-url", "origin", "https://example.com/acme/other.git")
    refused = cli("runs", "apply", "run_01", *where, "--json").json()["error"]
    forced = cli("runs", "apply", "run_01", *where, "--json", "--force").json()["error"]

    assert checked[0].out == f"{tmp_path}/origin-agent-x\n"
    assert (checked[1].code, "there already" in checked[1].err) == (2, True)
    assert (applied[0].code, applied[0].json()["files"]) == (0, 3)
    assert (applied[1].code, "uncommitted changes" in applied[1].json()["error"]["message"]) == (2, True)
    assert (refused["kind"], "--force" in refused["message"]) == ("wrong_state", True)
    assert "has no remote of acme/" in refused["message"]
    assert "uncommitted changes" in forced["message"]


def test_foreign_sequences_are_made_visible(cli: CommandLine) -> None:
    """Only our colours are sequences; control characters in a patch, name or review become visible signs."""
    shown = cli("runs", "diff", "run_01", "--color").out
    for tone in ("32", "31", "36", "1", "2", "0"):
        shown = shown.replace(f"\x1b[{tone}m", "")
    (finding,) = cli("runs", "review", "run_01", "--output", "ndjson").out.splitlines()
    stat, names = cli("runs", "diff", "run_01", "--stat").out, cli("runs", "diff", "run_01", "--name-only").out

    assert "+␛[2Jdef f():" in shown
    assert "\x1b" not in shown + stat + names
    assert '"reviews/r\ufffd.md"' in finding
    assert names.splitlines() == ["code.py", '"od\\042d\\012name"', '"reviews/r\\377.md"']
    assert stat.splitlines()[-1].split()[:3] == ["3", "files,", "8"]
