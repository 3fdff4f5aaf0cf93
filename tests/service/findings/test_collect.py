"""An agent's findings are read, whatever it wrote, and each keeps its id."""

import json
import os
import tracemalloc
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, Field

from service.findings import MAX_FINDINGS, Finding, IdentifiedFinding, pack_findings
from service.findings.collect import clear, collect
from service.secrets import Secrets
from tests.program import ROOT
from tests.service.conftest import Own
from tests.service_process import git
from tests.waiting import present

JSON: Final = ".runwarden/findings.json"
SARIF: Final = ".runwarden/findings.sarif"
SOURCE: Final = "import os\n\n\ndef run(text):\n    return eval(text)\n"
EVAL: Final = {"rule": "eval", "path": "src/a.py", "line": 5, "title": "Text becomes code"}


def written(tree: Path, document: Any, name: str = JSON, source: str = SOURCE) -> Path:
    text = document if isinstance(document, str | bytes) else json.dumps(document)
    for path, content in ((name, text), ("src/a.py", source)):
        file = tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return tree


class FindingsFile(BaseModel):
    """The whole file."""

    version: Literal[1]
    findings: list[Finding] = Field(max_length=MAX_FINDINGS)


class Collected(NamedTuple):
    """The findings, and the remarks about them."""

    findings: tuple[IdentifiedFinding, ...] | None
    remarks: list[str]


def read(tree: Path, root: str = "/workspace") -> Collected:
    remarks: list[str] = []
    return Collected(collect(tree, root, Secrets({"KEY": "sk-123456"}).mask, remarks), remarks)


def told(tree: Path, *findings: dict[str, Any], source: str = SOURCE) -> list[Any]:
    return list(present(read(written(tree, {"version": 1, "findings": findings}, source=source)).findings))


def test_the_published_schema_is_the_checked_one() -> None:
    published = (ROOT / "docs/findings.schema.json").read_text("utf-8")

    assert published == json.dumps(FindingsFile.model_json_schema(), indent=2) + "\n"


def test_a_finding_keeps_its_id_when_its_lines_move(tmp_path: Path) -> None:
    """A moved, indented or reworded finding is the same; another rule, file or line is another; equal ones differ.

    Without a rule the lines identify it, and without lines the title, since models reword the same problem.
    """
    (one,) = told(tmp_path, EVAL)
    moved = "# first\n" + SOURCE.replace("    return", "\t  return")
    (again,) = told(tmp_path, EVAL | {"line": 6, "title": "Other words", "severity": "blocker"}, source=moved)
    changes: tuple[dict[str, Any], ...] = ({"rule": "x"}, {"line": 4}, {"path": "b.py"}, {}, {"title": "2"})
    others = told(tmp_path, *(EVAL | change for change in changes))

    assert again.id == one.id == others[3].id
    assert len({each.id for each in others}) == len(others) == 5

    bare = {"path": "src/a.py", "line": 5}
    (one,), (other,) = told(tmp_path, bare | {"title": "Danger"}), told(tmp_path, bare | {"title": "A danger"})
    first, second = told(tmp_path, {"path": "c.py", "title": "No tests"}, {"path": "c.py", "title": "No docs"})

    assert one.id == other.id
    assert first.id != second.id
    assert told(tmp_path, bare | {"line": 99, "end_line": 100, "title": "Beyond the end"})[0].line is None


def test_texts_are_printable_and_contain_no_secret(tmp_path: Path) -> None:
    """Control characters become signs, long texts are cut, and the result can be read back."""
    (one,) = told(tmp_path, EVAL | {"title": "a\n\x1b[2Jsk-123456" + "x" * 400, "message": "one\r\ntwo\u202e"})

    assert one.title.startswith("a \u241b[2J[masked]xxx")
    assert (len(one.title), one.message) == (300, "one\ntwo\ufffd")
    assert json.loads(pack_findings("a", [one])) == {"base": "a", "findings": [one.model_dump()]}


LIES: Final = (
    *(({"path": path}, "path: ") for path in ("../../etc/x", "/etc/passwd", ".git/config", "a\x1b.py", 7)),
    *(({"line": line}, "line: ") for line in (0, 10**30)),
    ({"severity": "urgent"}, "severity: "),
    ({"title": None}, "title: "),
)


def test_only_the_invalid_finding_is_omitted(tmp_path: Path) -> None:
    """The log names it by its number, and the others count."""
    found = read(written(tmp_path, {"version": 1, "findings": [*(EVAL | lie for lie, _ in LIES), EVAL]}))

    assert [one.rule for one in found.findings or ()] == ["eval"]
    for number, (remark, (_, reason)) in enumerate(zip(found.remarks, LIES, strict=True), 1):
        assert remark.startswith(f"finding {number} is left out: ")
        assert reason in remark


def test_a_broken_file_is_logged_without_a_failure(tmp_path: Path) -> None:
    contents = ("", b"\xff\xfe", "[]", "[" * 100_000, "1" * 5_000, '{"version": 2, "findings": []}', "x" * (1 << 21))
    for name, content in product((JSON, SARIF), contents):
        found = read(written(tmp_path / name[-5:], content, name))

        assert found.findings is None
        assert [one.startswith(f"{name} is not ") for one in found.remarks] == [True], content[:40]


def test_links_and_special_files_are_not_read(tmp_path: Path) -> None:
    """The file, its folder and a source must not lead out of the checkout."""
    outside = written(tmp_path / "outside", {"version": 1, "findings": [EVAL]})
    linked, special = tmp_path / "linked", tmp_path / "special"
    for tree in (linked, special / ".runwarden"):
        tree.mkdir(parents=True)
    (linked / ".runwarden").symlink_to(outside / ".runwarden")
    os.mkfifo(special / JSON)
    for tree in (linked, special):
        found = read(tree)
        assert found.findings is None
        assert len(found.remarks) == 1
    (one,) = told(tmp_path / "own", EVAL)
    source = tmp_path / "own" / "src"
    (source / "a.py").unlink()
    source.rmdir()
    source.symlink_to(outside / "src")
    clear(linked)

    assert read(tmp_path / "own").findings != (one,)
    assert (outside / JSON).exists()


def located(uri: str, **region: Any) -> list[dict[str, Any]]:
    artifact = {"uri": uri, "uriBaseId": "%SRCROOT%", "index": 0}
    return [{"physicalLocation": {"artifactLocation": artifact, "region": region}}]


_RULE: Final = {
    "id": "py/code-injection",
    "defaultConfiguration": {"enabled": True, "level": "error"},
    "properties": {"security-severity": "9.3"},
}
CODEQL: Final[dict[str, Any]] = {
    "tool": {"driver": {"name": "CodeQL", "rules": []}, "extensions": [{"name": "queries", "rules": [_RULE]}]},
    "results": [
        {
            "ruleId": "py/code-injection",
            "rule": {"id": "py/code-injection", "index": 0, "toolComponent": {"index": 0}},
            "message": {"text": "Detected the use of eval().\nIt runs what it is given."},
            "locations": located("src%2Fa.py", startLine=4, endLine=5, endColumn=1),
        },
        {"ruleId": "py/code-injection", "suppressions": [{"kind": "inSource"}], "message": {"text": "x"}},
    ],
}


def test_sarif_of_real_scanners_is_read(tmp_path: Path) -> None:
    """Rules of extensions, scores as severities, encoded addresses and suppressed results are understood."""
    found = read(written(tmp_path, {"version": "2.1.0", "runs": [CODEQL]}, SARIF)).findings

    assert [(one.rule, one.severity, one.line, one.end_line, one.title) for one in found or ()] == [
        ("py/code-injection", "blocker", 4, 4, "Detected the use of eval().")
    ]

    for value in (None, 1, "x", [], [[]], {}, [{"text": 1}]):
        for key in ("ruleId", "rule", "ruleIndex", "message", "locations", "level", "suppressions"):
            run = CODEQL | {"results": [CODEQL["results"][0] | {key: value}]}
            bare = {key: value, "tool": value, "results": value}
            for runs in ([run, value], [bare]):
                read(written(tmp_path, {"version": "2.1.0", "runs": runs}, SARIF))


def test_only_the_most_severe_of_too_many_findings_are_kept(tmp_path: Path) -> None:
    """Placeholders in SARIF must not multiply without limit."""
    many = [EVAL | {"rule": f"r{number}", "severity": "note"} for number in range(MAX_FINDINGS)]
    found = read(written(tmp_path, {"version": 1, "findings": [*many, EVAL | {"severity": "blocker"}]}))
    place = {"physicalLocation": {"artifactLocation": {"uri": "src/a.py"}}}
    bomb = {"message": {"text": "{0}" * 5_000, "arguments": ["x" * 5_000]}, "locations": [place]}
    written(tmp_path, {"version": "2.1.0", "runs": [{"results": [bomb]}]}, SARIF)
    tracemalloc.start()
    read(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found.findings is not None
    assert (len(found.findings), found.findings[0].severity) == (MAX_FINDINGS, "blocker")
    assert found.remarks[0].startswith("1 finding left out")
    assert peak < 15 << 20


FINDER: Final = """
import json, pathlib, sys
task = json.load(sys.stdin)
folder = pathlib.Path(".runwarden")
folder.mkdir(exist_ok=True)
one = {"rule": "r", "path": "README.md", "line": 1, "title": "heading"}
(folder / "findings.json").write_text(json.dumps({"version": 1, "findings": [one, {"path": "/x", "title": "y"}]}))
(folder / "findings.sarif").write_text("{")
if task["instructions"] == "write":
    (folder / "other.txt").write_text("never committed")
    pathlib.Path("kept.txt").write_text("kept")
"""


def test_findings_are_read_after_the_turn_and_never_committed(own: Own, tmp_path: Path) -> None:
    """Findings in the repository itself are ignored, and broken ones are logged."""
    stale = '{"version": 1, "findings": [{"path": "a", "title": "stale"}]}'
    api, bare = own({"README.md": "# api\n", ".runwarden/findings.json": stale})
    api.add_agent(tmp_path, "finder", FINDER, "--org", api.organization["slug"])
    api.add_agent(tmp_path, "idler", "", "--org", api.organization["slug"])
    runs = [api.begin("finder", instructions="write"), api.begin("finder", instructions="look"), api.begin("idler")]
    writing, looking, idle = (api.ended(run_id) for run_id in runs)
    (wrote,), (looked,), (none,) = (api.turns(run_id) for run_id in runs)

    assert [run["status"] for run in (writing, looking, idle)] == ["completed"] * 3
    assert git("diff", "--name-only", "main", writing["branch_name"], cwd=bare) == "kept.txt"
    assert (looked["commit"], none["findings"]) == (None, None)
    assert wrote["findings"] == looked["findings"]
    assert [(one["path"], one["line"], one["severity"], len(one["id"])) for one in wrote["findings"]] == [
        ("README.md", 1, "minor", 16)
    ]
    assert "finding 2 is left out: path: " in api.log(runs[0])
    assert ".runwarden/findings.sarif is not " in api.log(runs[0])
