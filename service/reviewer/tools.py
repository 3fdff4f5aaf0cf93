"""What ruff, detect-secrets and the parsers of JSON and TOML find in files, as drafts of findings."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from service.findings import SEVERITIES, Severity, sarif_drafts
from service.findings.collect import read

Topic = Literal["security", "correctness", "style"]
_TIMEOUT_S, _FILES, _FILE_BYTES = 300.0, 5_000, 512 << 10
_RULES: Final = "F,E71,E72,B,S,BLE,A00,PLE,T10,SIM115,FIX"
_NOT: Final = "S101,S104,S108,S311,S404,S603,S607,B905"
"""Rules that are right too rarely to be read, and those whose message quotes a text of the file."""
_BLOCKER: Final = re.compile(r"secret-(?!keyword|basic|base64)|merge-conflict|invalid-syntax")
_MAJOR: Final = re.compile(r"secret-(?!base64)|data-syntax|S(?!110|112|301|IM)|F[567](?!41)|F82|PLE|T10|B00")
_NOTE: Final = re.compile(r"A00|FIX")
_TOPICS: Final[Mapping[Topic, re.Pattern[str]]] = {
    "security": re.compile(r"secret-|S(?!110|112|IM)"),
    "style": re.compile(r"A00|FIX|F401|F541|F811|F841|E71"),
}
_CONFLICT: Final = re.compile(r"^<{7} .*?^={7}$.*?^>{7} ", re.MULTILINE | re.DOTALL)
_COMMENTED_JSON: Final = re.compile(r"(?:^|/)(?:\.vscode|\.devcontainer)/|[jt]sconfig[\w.-]*\.json\Z")
_TEST: Final = re.compile(r"(?:^|/)(?:(?:tests?|testdata|fixtures)/|test_[^/]*\Z|[^/]*[._]test\.\w+\Z)")
_WHY: Final = re.compile(r"^## Why is this bad\?\n(.+?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)


def topic(rule: str) -> Topic:
    """Return the topic of a rule."""
    return next((topic for topic, rules in _TOPICS.items() if rules.match(rule)), "correctness")


def _severity(rule: str, path: str = "") -> Severity:
    """Return a finding's severity; an apparent secret in a test is most likely made up."""
    if _NOTE.match(rule) or (topic(rule) == "security" and _TEST.search(path)):
        return "note"
    return "blocker" if _BLOCKER.match(rule) else "major" if _MAJOR.match(rule) else "minor"


def _draft(rule: str, path: str, line: int | None, title: str, message: str) -> dict[str, object]:
    severity = _severity(rule, path)
    return {"rule": rule, "severity": severity, "path": path, "line": line, "title": title, "message": message}


def read_files(root: Path, sizes: Mapping[str, int]) -> tuple[list[dict[str, object]], set[str], list[str]]:
    """Read files of the checkout with every tool; `sizes` are in bytes, by path.

    Returns drafts of findings, the files that could not be read, and remarks about tools that failed.
    """
    drafts: list[dict[str, object]] = []
    remarks: list[str] = []
    unread: set[str] = set()
    paths: list[str] = []
    for path, size in sizes.items():
        try:
            is_readable = size <= _FILE_BYTES and len(paths) < _FILES and path.isprintable()
            # A set-up may have replaced it by a link or a pipe.
            text = read(root, path, _FILE_BYTES).decode("utf-8-sig") if is_readable else None
        except (OSError, UnicodeDecodeError):
            text = None
        if text is None:
            unread.add(path)
        else:
            paths.append(path)
            text = text.replace("\r\n", "\n")
            if conflict := _CONFLICT.search(text):
                line, advice = text.count("\n", 0, conflict.start()) + 1, "Decide, and delete the markers."
                drafts.append(_draft("merge-conflict", path, line, "A merge conflict begins here", advice))
            try:
                if path.endswith(".json") and text.strip() and not _COMMENTED_JSON.search(path):
                    json.loads(text, parse_int=str)
                elif path.endswith(".toml"):
                    tomllib.loads(text)
            except RecursionError:
                pass  # the file is nested too deeply for the parser, but may be correct
            except ValueError as error:
                place = re.search(r"line (\d+)", str(error))
                reason = error.msg if isinstance(error, json.JSONDecodeError) else "it is not valid TOML"
                title, number = f"The file cannot be parsed: {reason}", int(place[1]) if place else None
                drafts.append(_draft("data-syntax", path, number, title, "Programs that read it fail."))
    modules = [path for path in paths if path.endswith((".py", ".pyi"))]
    for name, run, chosen in (("detect-secrets", _secrets, paths), ("ruff", _ruff, modules)):
        # A line with a secret is reported once, and by the tool that does not quote it.
        reported = {(draft["path"], draft["line"]) for draft in drafts if str(draft["rule"]).startswith("secret-")}
        try:
            more = run(root, chosen) if chosen else ()
            drafts += [draft for draft in more if (draft["path"], draft["line"]) not in reported]
        except (OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
            unread.update(chosen)
            remarks.append(f"{name} failed: {type(error).__name__}")
    return drafts, unread, remarks


def _secrets(root: Path, paths: Sequence[str]) -> Iterator[dict[str, object]]:
    """Have detect-secrets read files; it uses no network, and its report does not hold the secrets."""
    options = ("--cores", "1", "scan", "--no-verify", "--disable-plugin", "HexHighEntropyString")
    advice = "History keeps it: revoke it, and read the new one from a secret store."
    for path, secrets in _json(root, "detect_secrets", *options, "--", *paths)["results"].items():
        for line in sorted({secret["line_number"] for secret in secrets}):
            kinds = [secret["type"] for secret in secrets if secret["line_number"] == line]
            rules = [f"secret-{kind.lower().removeprefix('secret ').replace(' ', '-')}" for kind in kinds]
            # A line is reported once, as the gravest secret that it resembles.
            rule = min(rules, key=lambda rule: SEVERITIES.index(_severity(rule)))
            yield _draft(rule, path, line, f"This looks like a secret: {kinds[rules.index(rule)]}", advice)


def _ruff(root: Path, paths: Sequence[str]) -> Iterator[dict[str, object]]:
    """Have ruff check Python files, whatever configuration the repository holds."""
    options = ("--isolated", "--no-cache", "--exit-zero", "--force-exclude", "--target-version", "py314")
    output = ("--output-format", "sarif", "--select", _RULES, "--ignore", _NOT)
    document = _json(root, "ruff", "check", *options, *output, "--", *paths)
    advice = {}
    for rule in document["runs"][0]["tool"]["driver"]["rules"]:
        why = _WHY.search(rule["fullDescription"]["text"])
        advice[rule["id"]] = " ".join(why[1].split()) if why else ""
    for draft in sarif_drafts(document, str(root)):
        rule = str(draft["rule"])
        yield draft | {"severity": _severity(rule, str(draft["path"])), "message": advice.get(rule, "")}


def _json(root: Path, module: str, *arguments: str) -> Any:
    """Run a module of this Python in the checkout, without importing from there, and return its output."""
    command = [sys.executable, "-P", "-m", module, *arguments]
    env = os.environ | {"PYTHONUTF8": "1"}
    done = subprocess.run(command, cwd=root, env=env, input=b"", capture_output=True, timeout=_TIMEOUT_S, check=True)
    return json.loads(done.stdout)
