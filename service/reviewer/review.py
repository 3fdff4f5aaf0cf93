"""The review of one turn: the checkout, what tools find in it, the state of the last turn's findings, and the text.

The checkout is read with git: no hook, filter, pager or program of the repository runs. The tools are ruff,
detect-secrets and the parsers of JSON and TOML.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

from pydantic import TypeAdapter

from service.findings import MAX_FINDINGS, SEVERITIES, IdentifiedFinding, Severity, check_findings, sarif_drafts
from service.findings.collect import identify, read
from service.git import GitCommandError, GitRunner
from service.text import one_line, plural

REVIEWS: Final = "reviews/"
"""The folder of all reviews, whose files are not reviewed themselves."""
_OFFLINE: Final = {"GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_ALLOW_PROTOCOL": "none"}
# With this option on submodules, git reads no `.gitmodules`: the repository could make it fail with that file.
_DIFF: Final = (
    *("diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-commit-id"),
    "--ignore-submodules=none",
)
_HUNK: Final = re.compile(r"^@@ -[0-9,]+ \+([0-9]+)(?:,([0-9]+))? @@", re.MULTILINE)
_VERDICTS: Final = {
    "blocker": "Do not merge",
    "major": "Changes needed",
    "minor": "Can be merged, with remarks",
    "note": "Nothing found that blocks a merge",
}
_ROWS, _RECORDED = 20, 2_000
_MARKUP: Final = re.compile(r"[\\*_\[\]<>&~|$@#!]|(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE)
_MARK, _END = "<!-- runwarden-review ", " -->"
Topic = Literal["security", "correctness", "style"]
_TIMEOUT_S, _FILES, _FILE_BYTES = 300.0, 5_000, 512 << 10
_RULES: Final = "F,E71,E72,B,S,BLE,A00,PLE,T10,SIM115,FIX"
_IGNORED_RULES: Final = "S101,S104,S108,S311,S404,S603,S607,B905"
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
_RULE_REASON: Final = re.compile(r"^## Why is this bad\?\n(.+?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
Findings = list[IdentifiedFinding]
_RECORD: Final = TypeAdapter(Findings)


def topic(rule: str) -> Topic:
    return next((topic for topic, rules in _TOPICS.items() if rules.match(rule)), "correctness")


def _severity(rule: str, path: str = "") -> Severity:
    """Return a finding's severity; an apparent secret in a test is most likely made up."""
    if _NOTE.match(rule) or (topic(rule) == "security" and _TEST.search(path)):
        return "note"
    if _BLOCKER.match(rule):
        return "blocker"
    return "major" if _MAJOR.match(rule) else "minor"


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
                line = text.count("\n", 0, conflict.start()) + 1
                advice = "Decide, and delete the markers."
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
                reason = "it is not valid TOML"
                if isinstance(error, json.JSONDecodeError):
                    reason = error.msg
                title = f"The file cannot be parsed: {reason}"
                number = int(place[1]) if place else None
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
    output = ("--output-format", "sarif", "--select", _RULES, "--ignore", _IGNORED_RULES)
    document = _json(root, "ruff", "check", *options, *output, "--", *paths)
    advice = {}
    for rule in document["runs"][0]["tool"]["driver"]["rules"]:
        match = _RULE_REASON.search(rule["fullDescription"]["text"])
        advice[rule["id"]] = " ".join(match[1].split()) if match else ""
    for draft in sarif_drafts(document, str(root)):
        rule = str(draft["rule"])
        yield draft | {"severity": _severity(rule, str(draft["path"])), "message": advice.get(rule, "")}


def _json(root: Path, module: str, *arguments: str) -> Any:
    """Run a module of this Python in the checkout, without importing from there, and return its output."""
    command = [sys.executable, "-P", "-m", module, *arguments]
    env = os.environ | {"PYTHONUTF8": "1"}
    done = subprocess.run(command, cwd=root, env=env, input=b"", capture_output=True, timeout=_TIMEOUT_S, check=True)
    return json.loads(done.stdout)


def read_record(review: str) -> Findings | None:
    """Return the findings in the comment at the end of a review; None if unreadable."""
    try:
        return _RECORD.validate_json(review[review.rindex(_MARK) + len(_MARK) : review.rindex(_END)])
    except ValueError:
        return None


class Checkout:
    """A repository's working tree as of its last commit, and the changes of its branch."""

    def __init__(self, root: Path, default_branch: str | None) -> None:
        """Compare with the commit where the branch left the default branch, or count the whole tree as changed."""
        self.root = root
        git_dir = {"GIT_DIR": os.environ["GIT_DIR"]} if "GIT_DIR" in os.environ else {}
        self._git = GitRunner(root, 120.0, _OFFLINE | git_dir).inside(None, root)
        self.head = self._ask("rev-parse", "HEAD^{commit}").strip()
        self.sizes: dict[str, int] = {}
        """The size of each regular file, by path; links and submodules are left out."""
        for record in self._ask("ls-tree", "-r", "-l", "-z", "--full-tree", self.head).split("\0"):
            about, _, path = record.partition("\t")
            # Contents that were not fetched have no size.
            if about.startswith("100") and (size := about.split()[3]).isdecimal():
                self.sizes[path] = int(size)
        self.reason = "not compared with another branch"
        self.base, self.changes = "", dict[str, tuple[int, int] | None]()
        """Lines added and deleted, by path; None: the file is binary."""
        if default_branch:
            try:
                self.base = self._ask("merge-base", f"refs/remotes/origin/{default_branch}", self.head).strip()
                self.changes = self._changes()
                self.reason = f"the branch does not differ from {default_branch}"
            except GitCommandError:
                self.reason = f"{default_branch} is not in this checkout, or shares no history with this branch"
        self._lines: dict[str, frozenset[int]] = {}
        self.is_whole = not self.changes
        if self.is_whole:
            self.base = self._ask("hash-object", "-t", "tree", "--stdin").strip()  # an empty tree
            self.changes = self._changes()
        else:
            self.reason = f"compared with {default_branch} where the branch left it"

    def has_changed(self, path: str, line: int | None, end: int | None) -> bool:
        """Whether the branch added or changed one of these lines of a file; without a line, the file."""
        if self.is_whole or line is None or path not in self.changes:
            return path in self.changes
        if path not in self._lines:
            patch = self._ask(*_DIFF, "-p", "-U0", self.base, self.head, "--", f":(literal,top){path}")
            spans = ((int(hunk[1]), int(hunk[2] or "1")) for hunk in _HUNK.finditer(patch))
            self._lines[path] = frozenset(number for start, length in spans for number in range(start, start + length))
        return not self._lines[path].isdisjoint(range(line, (end or line) + 1))

    def _changes(self) -> dict[str, tuple[int, int] | None]:
        sizes: dict[str, tuple[int, int] | None] = {}
        for record in self._ask(*_DIFF, "--numstat", "-z", self.base, self.head).split("\0"):
            added, _, rest = record.partition("\t")
            deleted, _, path = rest.partition("\t")
            if path and not path.startswith(REVIEWS):
                sizes[path] = None if added == "-" else (int(added), int(deleted))
        return sizes

    def _ask(self, *arguments: str) -> str:
        # Each missing content would start a process that cannot fetch it.
        offline = ("-c", "remote.not-fetched.promisor=false")
        return self._git.feed("", *offline, *arguments)


class Review:
    """The review of one turn: its findings, compared with the last review."""

    def __init__(
        self, checkout: Checkout, last: Findings | None, topics: Sequence[str], paths: Sequence[str], instructions: str
    ) -> None:
        """Read the changed files, and those of the last review's findings (None: there was no review).

        `topics` and `paths` leave out other findings, but no blocker; topics that the instructions name come first.
        """
        self._checkout = checkout
        self._last = last
        self._focus = (*topics, *paths)
        paths_to_read = sorted(
            (checkout.changes.keys() | {finding.path for finding in last or ()}) & checkout.sizes.keys()
        )
        drafts, self._unread, self._remarks = read_files(
            checkout.root, {path: checkout.sizes[path] for path in paths_to_read}
        )
        findings = sorted(check_findings(drafts, self._remarks), key=lambda row: (row.path, row.line or 0, row.rule))
        self._found = {finding.id: finding for finding in identify(findings, checkout.root)}
        found = self._found.values()
        in_change = [finding for finding in found if checkout.has_changed(finding.path, finding.line, finding.end_line)]
        self._older = len(findings) - len(in_change)

        # Each entry is a path, a parent folder, or a glob for the path or the file name.
        bare = [path.removeprefix("./").rstrip("/") for path in paths]
        patterns = [pattern for path in bare for pattern in (path, f"{path}/*", f"*/{path}")]

        def is_wanted(finding: IdentifiedFinding) -> bool:
            in_focus = not topics or topic(finding.rule) in topics
            return in_focus and (not paths or any(fnmatchcase(finding.path, pattern) for pattern in patterns))

        self._reported = [finding for finding in in_change if finding.severity == "blocker" or is_wanted(finding)]
        words = instructions.lower()
        self._reported.sort(key=lambda finding: (topic(finding.rule) not in words, SEVERITIES.index(finding.severity)))
        self._left_out = len(in_change) - len(self._reported)
        self._still, self._resolved = Findings(), Findings()
        for finding in last or ():
            is_open = finding.id in self._found or finding.path in self._unread
            (self._still if is_open else self._resolved).append(self._found.get(finding.id, finding))
        counted = Counter(finding.severity for finding in self._reported)
        counts = (plural(counted[severity], severity) for severity in SEVERITIES if counted[severity])
        self.counts = ", ".join(counts) or "no findings"
        """`1 blocker, 2 majors`, or `no findings`."""
        verdict = _VERDICTS[min(counted, key=SEVERITIES.index, default="note")]
        turns = ""
        if last is not None:
            turns = f"; {len(self._resolved)} resolved, {len(self._still)} still open"
        self.summary = f"{verdict}: {self.counts} in {plural(len(checkout.changes), 'file')}{turns}."
        """The review in one line, for a list of runs."""

    def document(self) -> str:
        """Return the findings for programs, version 1 (docs/findings.schema.json)."""
        findings = [finding.model_dump(exclude={"id"}) for finding in self._reported[:MAX_FINDINGS]]
        return json.dumps({"version": 1, "findings": findings})

    def markdown(self, title: str) -> str:
        """Return the whole review, ending in the record for the next turn."""
        record = {finding.id: finding for finding in (*self._reported, *self._still)}
        comment = _RECORD.dump_json(list(record.values())[:_RECORDED], exclude={"__all__": {"message"}}).decode()
        for character in "<>&-":  # these could end the comment
            comment = comment.replace(character, f"\\u{ord(character):04x}")
        return "\n".join(self._lines(title)) + f"\n{_MARK}{comment}{_END}\n"

    def _lines(self, title: str) -> Iterator[str]:
        checkout = self._checkout
        yield f"# {plain(title)}\n\n**{self.summary.replace(':', ':**', 1)}\n"
        scope = "the whole tree at" if checkout.is_whole else f"`{checkout.base[:12]}` to"
        yield f"Reviewed: {scope} `{checkout.head[:12]}`; {plain(checkout.reason)}.\n"
        if self._focus:
            yield f"Focus: {plain(', '.join(self._focus))}; left out: {self._left_out}. Blockers are always listed.\n"
        if self._last is not None:
            yield from self._comparison(self._last)
        yield from self._finding_lines()
        yield from self._sizes()
        yield "## What was not checked\n"
        yield "- Whether the code does what it should: nothing was run, and no model read it or the instructions."
        yield "- Languages other than Python, except for secrets, conflicts, JSON and TOML."
        yield "- Dependencies, and earlier commits."
        if self._older:
            yield f"- Findings from before the branch: {self._older}, not listed; ask for `everything` to see them."
        if self._unread:
            yield f"- Files that were not read, for their size, their encoding or a failed tool: {len(self._unread)}."
        yield from (*(f"- {plain(remark)}." for remark in self._remarks), "")

    def _comparison(self, last: Findings) -> Iterator[str]:
        """Compare the findings with the last review's."""
        before = {finding.id for finding in last}
        new = [finding for finding in self._reported if finding.id not in before]
        groups = {"resolved": self._resolved, "still open": self._still, "new": new}
        counts = ", ".join(f"{len(findings)} {name}" for name, findings in groups.items())
        yield f"## Since the last review\n\n{counts}.\n"
        for name, findings in groups.items():
            if findings:
                yield f"**{name.capitalize()}**\n"
                yield from _list(
                    [f"{row.severity} {code(row.rule)} in {code(row.path)}{_line(row)}" for row in findings]
                )
        if any(finding.rule.startswith("secret-") for finding in self._resolved):
            yield "A secret that is gone from the files is still in their history: it is valid until it is revoked.\n"

    def _finding_lines(self) -> Iterator[str]:
        """List the findings by file, and what to do about them."""
        reported = self._reported[:MAX_FINDINGS]
        yield "## Findings\n" if reported else "## Findings\n\nNone.\n"
        for path in dict.fromkeys(finding.path for finding in reported):
            yield f"### {code(path)}\n"
            for row in reported:
                if row.path == path:
                    yield f"- **{row.severity}** {code(row.rule)}{_line(row)}: {plain(row.title)}"
            yield ""
        if len(self._reported) > MAX_FINDINGS:
            yield f"And {len(self._reported) - MAX_FINDINGS} more: name paths or topics in the inputs to see them.\n"
        advice = {finding.rule: finding.message for finding in reported if finding.message}
        if advice:
            yield "## What to do\n"
            yield from (f"- {code(rule)}: {plain(' '.join(message.split()))}" for rule, message in advice.items())
            yield ""

    def _sizes(self) -> Iterator[str]:
        """Describe the number, size and kinds of the files, and list the largest."""
        checkout, changes = self._checkout, self._checkout.changes
        added, deleted = (sum(lines) for lines in zip((0, 0), *filter(None, changes.values()), strict=True))
        size = sum(checkout.sizes.get(path, 0) for path in changes) / 1024
        kinds = Counter(PurePosixPath(path).suffix.lower() or "no suffix" for path in changes).most_common(_ROWS)
        yield f"## {'What is there' if checkout.is_whole else 'What changed'}\n"
        yield f"{plural(len(changes), 'file')}, {size:,.1f} KiB; {added} lines added, {deleted} deleted."
        yield f"Kinds: {', '.join(f'{code(kind)} {number}' for kind, number in kinds)}. The largest:\n"
        largest = sorted(changes.items(), key=lambda change: -sum(change[1] or (0, 0)))
        rows = [(path, "binary" if lines is None else f"+{lines[0]} \u2212{lines[1]}") for path, lines in largest]
        yield from _list([f"{code(path)} {lines}" for path, lines in rows])


def _line(finding: IdentifiedFinding) -> str:
    return f" line {finding.line}" if finding.line else ""


def _list(rows: list[str]) -> Iterator[str]:
    yield from (f"- {row}" for row in rows[:_ROWS])
    yield f"- and {len(rows) - _ROWS} more\n" if len(rows) > _ROWS else ""


def plain(text: str) -> str:
    """Return foreign text as one line of Markdown without markup; its backticks become quotes."""
    return _MARKUP.sub(r"\\\g<0>", one_line(text.replace("`", "'"))[:600]).strip()


def code(text: str) -> str:
    safe = one_line(text.replace("`", "'"))[:300].strip()
    return f"`{safe or '(blank)'}`"
