"""The reviewer's rules, and their findings, each with a fingerprint that does not change when lines move."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Final


class Severity(StrEnum):
    """How much a finding weighs; the order of the members is the order of a review."""

    BLOCKER = "blocker"
    MAJOR = "major"
    MINOR = "minor"
    NOTE = "note"


SEVERITIES: Final = tuple(Severity)


class Topic(StrEnum):
    """A rule's topic; a focus is a set of these."""

    SECURITY = "security"
    CORRECTNESS = "correctness"
    TESTS = "tests"
    STYLE = "style"
    IMPORTS = "imports"
    DOCS = "docs"
    DEPENDENCIES = "dependencies"


BLOCKER, MAJOR, MINOR, NOTE = SEVERITIES
SECURITY, CORRECTNESS, TESTS, STYLE, IMPORTS, DOCS, DEPENDENCIES = Topic


class CheckRule(Enum):
    """A rule of the reviewer: severity, topic, and advice that names the danger and the cure."""

    SECRET_TOKEN = (BLOCKER, SECURITY, "History keeps this credential: revoke it, and read it from a secret store.")
    SECRET_PRIVATE_KEY = (BLOCKER, SECURITY, "Replace the key pair wherever it is trusted; history keeps this one.")
    SECRET_IN_URL = (MAJOR, SECURITY, "Addresses end up in logs. Revoke the password; read it from a secret store.")
    SECRET_ASSIGNMENT = (MAJOR, SECURITY, "If the value is real, revoke it; if not, make it look like a placeholder.")
    ENV_FILE = (MAJOR, SECURITY, "Remove the file, add it to .gitignore, and commit a .env.example without values.")
    EVAL = (MAJOR, SECURITY, "Text becomes code. Parse it (`ast.literal_eval`, `json.loads`) or use a table.")
    SHELL_TRUE = (MAJOR, SECURITY, "A `;` in a value becomes a command. Pass a list of arguments and no shell.")
    TLS_UNVERIFIED = (MAJOR, SECURITY, "Others can read and change the traffic. Leave certificate verification on.")
    UNSAFE_LOAD = (MAJOR, SECURITY, "This loader can run commands from the data. Use `yaml.safe_load`, or JSON.")
    BIDI_CONTROL = (MAJOR, SECURITY, "Invisible characters reorder the line on the screen. Delete or escape them.")
    SYMLINK_OUTSIDE = (MAJOR, SECURITY, "The link leaves the repository. Use the file itself, or a link inside it.")
    CONFLICT_MARKER = (BLOCKER, CORRECTNESS, "The merge is unresolved. Decide, delete the markers, run the tests.")
    PYTHON_SYNTAX = (BLOCKER, CORRECTNESS, "The module cannot be imported. Correct the line.")
    DATA_SYNTAX = (MAJOR, CORRECTNESS, "Programs that read this file fail. Correct the place named.")
    DEBUGGER = (MAJOR, CORRECTNESS, "In production the process stops here. Remove the statement.")
    MUTABLE_DEFAULT = (MAJOR, CORRECTNESS, "All calls share the default. Default to None and create it inside.")
    SWALLOWED_EXCEPTION = (MINOR, CORRECTNESS, "Every failure vanishes here. Catch the expected one, and log it.")
    FOCUSED_TEST = (MAJOR, TESTS, "All other tests of the file are skipped. Remove `.only`.")
    NO_TESTS = (MAJOR, TESTS, "The repository has code and no tests. Begin with one for the code changed here.")
    MISSING_TEST = (MINOR, TESTS, "No test names the module. Add one that imports it and states what it promises.")
    LEFTOVER_FILE = (MAJOR, STYLE, "A tool left it behind. git rm it, and add the pattern to .gitignore.")
    BUILD_PRODUCT = (MINOR, STYLE, "A binary cannot be reviewed, and history keeps it. Build it in CI, or use Git LFS.")
    LARGE_FILE = (MINOR, STYLE, "Every clone carries every version of it. Use Git LFS, or keep it elsewhere.")
    TODO = (NOTE, STYLE, "The remark has no owner and no date. Do it now, or name an issue here.")
    UNUSED_IMPORT = (MINOR, IMPORTS, "Delete it; if others import it from here, write `import x as x`.")
    BROKEN_LINK = (MINOR, DOCS, "The link leads to a page that does not exist. Correct the path, or remove the link.")
    UNPINNED = (NOTE, DEPENDENCIES, "Two installations can differ. Pin exact versions, best with hashes.")

    def __init__(self, severity: Severity, topic: Topic, advice: str) -> None:
        self.severity = severity
        self.topic = topic
        self.advice = advice

    @property
    def id(self) -> str:
        """The name in a review, such as `secret-token`."""
        return self.name.lower().replace("_", "-")


RULES: Final = {rule.id: rule for rule in CheckRule}


@dataclass(frozen=True, slots=True)
class ReviewFinding:
    """One breach of a rule. Texts are plain; the renderer escapes them."""

    rule: CheckRule
    path: str
    line: int
    """1-based; 0 when the finding is about the whole file."""
    message: str
    """The observation; never holds a secret."""
    anchor: str = ""
    """The text in the file that the finding is about; empty when a file has at most one such finding."""
    severity: Severity | None = None
    """None: the rule's own."""
    fingerprint: str = ""
    """16 hexadecimal digits, made by `identify` from the rule, the path and the words of the anchor."""

    @property
    def weight(self) -> Severity:
        """The finding's own severity, or else the rule's."""
        return self.severity or self.rule.severity


def identify(findings: Iterable[ReviewFinding]) -> Iterator[ReviewFinding]:
    """Give each finding its fingerprint; equal ones within a file are told apart by their order."""
    seen: Counter[tuple[str, str, str]] = Counter()
    for finding in findings:
        # Moving or re-indenting a line does not change its words.
        key = (finding.rule.id, finding.path, " ".join(finding.anchor.split()))
        seen[key] += 1
        text = "\0".join((*key, str(seen[key])))
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        yield replace(finding, fingerprint=digest[:16])
