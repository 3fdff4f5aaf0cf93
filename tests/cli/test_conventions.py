"""Conventions that users of other command lines expect and that scripts rely on."""

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from app.actions.refusals import ActionRefusedError
from app.api.errors import ApiError, RateLimitedError
from app.cli.exits import EXIT_BY_KIND, Exit, of_api_error
from app.cli.failures import CRASHED, failure_of
from app.cli.main import root
from app.notify.channels import RouteError
from service.cli import main
from storage import RunwardenError
from storage.errors import StorageError
from storage.records.error_kinds import ERROR_KINDS
from tests.cli.conftest import CommandLine
from tests.waiting import present


def test_contradictory_and_misspelled_options_are_refused(lone: CommandLine) -> None:
    """Contradictory options are refused, and none is dropped silently; the format option may come anywhere."""
    for line in ("--json runs list --cached", "runs -o json list --cached"):
        assert lone(*line.split()).json()["runs"] == []
    for line, named in (
        ("-o csv runs list --cached --json", "--json"),
        ("runs list --cached --active --status completed", "--active"),
        ("--profile a config check --profile b", "--profile"),
        # The error suggests the intended word; an empty list would look like a valid answer.
        ("runs export --cached --status !complete", "completed"),
        ("runs list --cached --search staus:failed", "Did you mean status:?"),
        ("runs lst", "list"),
        ("actions list --state unkown", "unknown"),
    ):
        result = lone(*line.split())
        assert (result.code, named in result.out + result.err) == (2, True), line


def test_a_mistake_on_the_command_line_is_json_too(lone: CommandLine) -> None:
    """Exit code 2 with JSON on stdout and nothing on stderr to parse; without --json, stdout stays empty."""
    for line in (
        "runs bogus --json",
        "runs list --output=ndjson --limit 0",
        "runs list --from -1h --to -2h --json",
        "runs show '' --json",
        "actions show ' ' --json",
        "runs start -R acme/api --metadata novalue go --json",
        "runs start -R acme/api --json",
        "runs start -R acme/api --metadata a=1 --metadata a=2 go --json",
        "actions resolve act_x --not-created --send-again --json",
    ):
        arguments = shlex.split(line)
        result, told = lone(*arguments), lone(*(each for each in arguments if "json" not in each and each != "-o"))
        assert (result.code, result.json()["error"]["kind"]) == (2, "usage"), line
        assert result.json()["error"]["message"]
        assert (told.code, told.out, bool(told.err)) == (2, "", True), line


def test_the_log_has_requests_but_not_the_token(boarded: CommandLine) -> None:
    """The log goes to stderr or a file and leaves stdout unchanged; it never contains the token."""
    plain, verbose = boarded("runs", "list", "--json"), boarded("-v", "runs", "list", "--json")
    boarded("runs", "start", "-R", "acme/api", "Say nothing of this.", "--log-file", "log", "-v")
    log = boarded.home / "log"

    assert not plain.err
    assert [run["run_id"] for run in verbose.json()["runs"]] == [run["run_id"] for run in plain.json()["runs"]]
    assert "GET /v1/external/runs?" in verbose.err
    assert "POST /v1/external/runs answered after" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    assert boarded.token not in verbose.err + log.read_text()
    assert "Say nothing" not in log.read_text()


DOCS = Path(__file__).parents[2] / "docs"


def commands(group: click.Group, path: tuple[str, ...] = ("runwarden",)) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


ALL = dict(commands(root))


def test_the_reference_page_is_up_to_date() -> None:
    """The reference page is up to date; `make reference` writes it again after a command changed."""
    written = runpy.run_path(str(DOCS / "reference.py"))

    assert written["PAGE"].read_text("utf-8") == written["reference"]()


def descendants(root: Any) -> list[Any]:
    return [root, *(below for child in root.__subclasses__() for below in descendants(child))]


def test_the_page_lists_every_kind_of_error_with_its_exit_code_and_whether_it_passes() -> None:
    """The page's table lists exactly the kinds of error that the code raises."""
    page = (DOCS / "use/commands.md").read_text("utf-8").partition("\n## Errors")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \| (\d+).*? \| (yes|no) \|", page, re.MULTILINE)
    listed = [(kind, int(code), passes) for kinds, code, passes in rows for kind in re.findall(r"\w+", kinds)]
    classes = {error.kind for error in descendants(RunwardenError) if "kind" in vars(error)}
    source = "".join(path.read_text("utf-8") for path in (DOCS.parent / "app").rglob("*.py"))

    exits = dict.fromkeys(classes, Exit.USAGE) | EXIT_BY_KIND | {"internal": CRASHED}
    passes = {kind: "yes" for kind, row in ERROR_KINDS.items() if row.passes}
    assert sorted(listed) == sorted((kind, int(code), passes.get(kind, "no")) for kind, code in exits.items())
    assert [kind for kind in EXIT_BY_KIND if kind not in classes and f'"{kind}"' not in source] == []


def test_every_kind_of_error_has_an_exit_code() -> None:
    """A new kind of error needs its own exit code; bugs are handled at the process's boundary."""
    files = [failure_of(error("Broken.", path=Path("/x"))) for error in descendants(StorageError)]
    closed = present(failure_of(RouteError("The route is closed. Open it.")))
    limited = of_api_error(RateLimitedError("Slow down.", retry_after_s=7.0))

    refusals = (error for error in descendants(ApiError) + descendants(ActionRefusedError) if "kind" in vars(error))
    assert {error.kind for error in refusals} <= {*EXIT_BY_KIND}
    assert [file and (file.exit, file.kind, file.detail["file"]) for file in files] == [
        (2, error.kind, "/x") for error in descendants(StorageError)
    ]
    assert (closed.kind, closed.message, closed.exit) == ("failed", "The route is closed. Open it.", Exit.USAGE)
    assert (limited.exit, limited.as_json()["retry_after_s"]) == (5, 7.0)
    assert failure_of(RuntimeError("bug")) is None


def test_the_services_commands_take_options_before_and_after_their_name(
    lone: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options of service commands work before and after the command's name.

    A spreadsheet executes none of the output.
    """

    def execv(_: str, argv: list[str]) -> None:
        assert argv[1:4] == ["-P", "-m", "service"]
        main([*map(str, argv[4:])], prog_name="runwarden service")

    # The service's program, which would replace this process, runs inside the test.
    monkeypatch.setattr("os.execv", execv)
    before, behind = (str(tmp_path / name) for name in ("before", "behind"))
    assert lone("--data-dir", before, "service", "org", "create", "=One", "--json").code == 0
    assert lone("--data-dir", before, "service", "org", "create", "Two", "--data-dir", behind).code == 0

    (two,) = lone("service", "--data-dir", behind, "org", "list", "--json").json()["organizations"]
    _, one = lone("service", "-o", "csv", "org", "list", "--data-dir", before).out.splitlines()
    assert (two["slug"], "'=One" in one) == ("two", True)
    read_only = lone("--read-only", "service", "org", "create", "One", "--data-dir", str(tmp_path / "made"))
    assert (read_only.code, (tmp_path / "made").exists()) == (2, False)
