"""One turn of work: read, check, compare with the last turn, and apply the focus that the task asks for."""

import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from service.errors import ServiceError
from service.reviewer.checks.files import folders_of
from service.reviewer.checks.secrets import excerpt
from service.reviewer.finding import SEVERITIES, CheckRule, ReviewFinding, Severity, Topic
from service.reviewer.git import GitFiles
from service.reviewer.record import Record, RecordError, Since, compare, decode
from service.reviewer.survey import BUDGET_S, ReviewScope, Survey, Surveyor, choose_scope
from service.reviewer.task import Task

_VERDICTS: Final = {
    Severity.BLOCKER: "Do not merge",
    Severity.MAJOR: "Changes needed",
    Severity.MINOR: "Can be merged, with remarks",
    Severity.NOTE: "Nothing found that stands in the way",
}

WORDS: Final = {topic.value: topic for topic in Topic} | {
    "secrets": Topic.SECURITY,
    "vulnerabilities": Topic.SECURITY,
    "bugs": Topic.CORRECTNESS,
    "coverage": Topic.TESTS,
    "documentation": Topic.DOCS,
}
"""Focus words, in lower case, and the topics they mean."""
_DEPTHS: Final = ("diff", "full")
_INPUTS: Final = ("depth", "focus", "paths")
_CLAUSE: Final = re.compile(r"[,;\n!?]|\.(?=\s|$)|\bbut\b")
_NEGATED: Final = re.compile(r"n't\b|\b(?:no|not|ignore|skip|without|except|exclude|leave out)\b", re.IGNORECASE)
_WORD: Final = re.compile(rf"(?<![\w/.-])(?:{'|'.join(WORDS)})(?![\w/-]|\.\w)", re.IGNORECASE)
_PATH: Final = re.compile(r"(?:[\w.\-]{1,100}/){1,20}[\w.\-]{0,100}|[\w\-]{1,100}\.\w{1,10}")
_WHOLE: Final = re.compile(r"\b(?:whole|entire|full)\s+(?:tree|repo(?:sitory)?|code ?base|project)\b", re.IGNORECASE)
_TEXT: Final = 20_000
"""Characters of the instructions, or of an input, that are read."""
_MOST: Final = 50
"""The most paths, or sentences about unclear inputs, of one focus."""


@dataclass(frozen=True, slots=True)
class Focus:
    """How this review differs from the usual one."""

    topics: frozenset[Topic] = frozenset()
    """Empty: every topic."""
    paths: tuple[str, ...] = ()
    """Files, folders or patterns; empty: every path."""
    whole_tree: bool = False
    """False: only the branch's changes, if there are any."""
    unclear: tuple[str, ...] = ()
    """Sentences about inputs that cannot be used; they may hold foreign text."""

    def wants(self, rule: CheckRule, path: str) -> bool:
        """Whether a finding of the rule in the path is reported; a blocker always is."""
        inside = not self.paths or any(matches(path, pattern) for pattern in self.paths)
        return rule.severity is Severity.BLOCKER or (inside and (not self.topics or rule.topic in self.topics))


def matches(path: str, pattern: str) -> bool:
    """Whether a pattern is the path, a folder above it, a glob for it, or a glob for its file name alone."""
    bare = pattern.removeprefix("./").rstrip("/")
    if path == bare or path.startswith(f"{bare}/") or fnmatchcase(path, bare):
        return True
    return "/" not in bare and fnmatchcase(path.rpartition("/")[2], bare)


def read_focus(instructions: str, inputs: dict[str, object], known: Collection[str]) -> Focus:
    """Find focus words and paths in the instructions and the inputs; an input overrides the instructions.

    Clauses with a negation, such as "skip the docs", are ignored, and so are paths that are not in `known`.
    The inputs `focus` and `paths` are each a text or a list of texts; `depth` is `diff` or `full`.
    """
    unknown = [key for key in inputs if key not in _INPUTS][:_MOST]
    unclear = [f"The input {excerpt(key, 60)} is not one of {', '.join(_INPUTS)}." for key in unknown]
    text = "\n".join(clause for clause in _CLAUSE.split(instructions[:_TEXT]) if not _NEGATED.search(clause))
    topics = frozenset(WORDS[word.lower()] for word in _WORD.findall(text))
    named = (path.rstrip("/.").removeprefix("./") for path in _PATH.findall(text))
    paths = tuple(dict.fromkeys(path for path in named if path in known))
    given = {key: inputs[key] for key in _INPUTS if inputs.get(key) is not None}
    depth = given.get("depth", "full" if _WHOLE.search(text) else "diff")
    if "focus" in given:
        words = [word.lower() for word in _texts(given["focus"])]
        topics = frozenset(WORDS[word] for word in words if word in WORDS)
        if not words or any(word not in WORDS for word in words):
            unclear.append(f"The input focus takes {', '.join(WORDS)}; it was {excerpt(given['focus'], 80)}.")
    if "paths" in given:
        paths = _texts(given["paths"])
        if not paths:
            unclear.append(f"The input paths takes a path or a list of paths; it was {excerpt(given['paths'], 80)}.")
    if depth not in _DEPTHS:
        unclear.append(f"The input depth takes {' or '.join(_DEPTHS)}; it was {excerpt(depth, 80)}.")
    return Focus(topics, paths[:_MOST], depth == "full", tuple(unclear[:_MOST]))


def _texts(value: Any) -> tuple[str, ...]:
    """The words of a text or the items of a list of texts; empty for any other value."""
    items = re.split(r"[,\s]+", value[:_TEXT]) if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        return ()
    return tuple(item.strip() for item in items if item.strip())[:_MOST]


class NothingToReviewError(ServiceError):
    """There is no commit to review; the text says what to do."""


@dataclass(frozen=True, slots=True)
class TurnReview:
    """One turn's review."""

    task: Task
    scope: ReviewScope
    focus: Focus
    survey: Survey
    reported: tuple[ReviewFinding, ...]
    """The branch's own findings within the focus, heaviest first."""
    beside_focus: int
    """Findings outside the focus."""
    since: Since | None = None
    """None: there is no last review to compare with."""
    since_problem: str = ""
    """Why a turn after the first has no last review."""

    @property
    def counts(self) -> dict[Severity, int]:
        """Reported findings by severity, zeros included, heaviest first."""
        counted = Counter(one.weight for one in self.reported)
        return {severity: counted[severity] for severity in SEVERITIES}

    @property
    def verdict(self) -> str:
        """The verdict on a merge, by the counts."""
        heaviest = next((severity for severity, number in self.counts.items() if number), Severity.NOTE)
        return _VERDICTS[heaviest]

    @property
    def record(self) -> Record:
        """The data for the next turn: reported findings, and earlier ones that may still hold."""
        earlier = (*self.since.still_open, *self.since.unseen) if self.since else ()
        findings = {one.fingerprint: one for one in (*self.reported, *earlier)}
        return Record(self.scope.base is None, tuple(findings.values()))


def review(
    task: Task, git: GitFiles, last: bytes | None, say: Callable[[str], None], clock: Callable[[], float]
) -> TurnReview:
    """Do one turn. `last` is the file of the last review, if there is one; `clock` counts seconds of work.

    Raises:
        NothingToReviewError: the branch has no commit.
        GitReadError: the repository cannot be read.
    """
    started = clock()
    head = git.commit("HEAD")
    if head is None:
        git.ask("rev-parse", "--git-dir")  # fails, and says why, when this is no repository at all
        raise NothingToReviewError("the branch has no commit yet; push one and start the run again")
    record, problem = None, ""
    try:
        record = decode(last)
    except RecordError as error:
        problem = str(error)
    entries, cut = git.tree(head)
    known = folders_of(entries) | entries.keys()
    focus = read_focus(task.instructions, task.inputs, known)
    # A run that read the whole tree goes on doing so: only then can two reviews be compared.
    whole = focus.whole_tree or (record is not None and record.whole_tree)
    scope = choose_scope(git, None if whole else task.default_branch, head)
    say(f"Turn {task.turn}: {len(scope.changes) or len(entries)} paths; {scope.reason}.")
    with git.blobs() as blobs:
        surveyor = Surveyor(scope, entries, None if cut else known, blobs, lambda: (clock() - started) / BUDGET_S)
        survey = surveyor.survey()
    introduced = [one for one in survey.found if one.fingerprint not in survey.older]
    say(f"Read {len(survey.sources)} files: {len(introduced)} findings, {len(survey.found) - len(introduced)} older.")
    in_focus = [one for one in introduced if focus.wants(one.rule, one.path)]
    reported = tuple(sorted(in_focus, key=lambda one: (SEVERITIES.index(one.weight), one.path, one.line, one.rule.id)))
    since = compare(record, scope, survey, reported, entries) if record else None
    return TurnReview(task, scope, focus, survey, reported, len(introduced) - len(in_focus), since, problem)
