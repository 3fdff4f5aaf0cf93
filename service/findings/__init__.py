"""Findings: an agent's remarks on places in the code, read from the files that it writes (docs/run/agents.md).

`findings.json` has version 1 (docs/findings.schema.json), and SARIF, which linters and scanners write, has 2.1.0. Each
finding is checked by itself; a document that cannot be used at all raises a `FindingsError`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self, get_args
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from service.errors import ServiceError, first_fault
from service.text import items, one_line, plural, printable, table

MAX_FINDINGS: Final = 200
"""How many findings of a turn are kept."""
Severity = Literal["blocker", "major", "minor", "note"]
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
"""Severities, heaviest first."""
_REMARKS: Final = 10
_SHOWN: Final = 200
_SARIF_SEVERITIES: Final = {"error": "major", "warning": "minor", "note": "note", "none": "note"}
_CRITICAL: Final = 9.0
"""The `security-severity` (0 to 10) from which on GitHub calls an alert critical."""
_MAX_MESSAGE: Final = 4_000
_MAX_TITLE: Final = 200
_MAX_ARGUMENT: Final = 400


class FindingsError(ServiceError):
    """A file of findings cannot be used at all; the text says why."""


def _in_one_line(limit: int) -> Callable[[str], str]:
    return lambda text: cut(one_line(" ".join(text.split())), limit)


def _in_lines(text: str) -> str:
    return cut(printable(text.replace("\r\n", "\n").replace("\r", "\n")).strip("\n"), _MAX_MESSAGE)


def cut(text: str, limit: int) -> str:
    """Return the text, cut with an ellipsis if it is longer than the limit."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _inside(path: str) -> str:
    """Return a path within the repository as git names it."""
    path = path.removeprefix("./")
    parts = path.split("/")
    if not path.isprintable() or "\\" in path or any(part.lower() in {"", ".", "..", ".git"} for part in parts):
        raise ValueError("it must lead to a file within the repository, with / between its parts")
    return path


_Line = Annotated[int, Field(ge=1, le=10_000_000)]


class Finding(BaseModel):
    """A remark on a place in the code. Texts that are too long are cut."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    rule: Annotated[str, AfterValidator(_in_one_line(100))] = Field(
        "", description="What was looked for, called the same from turn to turn: the finding's id is made of it."
    )
    severity: Severity = "minor"
    path: Annotated[str, Field(max_length=1_000), AfterValidator(_inside)] = Field(
        description="The file, from the root of the repository, with / between its parts."
    )
    line: _Line | None = Field(None, description="From 1; none: the whole file.")
    end_line: _Line | None = Field(None, description="The last line of the place; none: `line`.")
    title: Annotated[str, AfterValidator(_in_one_line(300))] = Field(description="The fault in one line.")
    message: Annotated[str, AfterValidator(_in_lines)] = Field("", description="Why, and how to fix it; plain text.")
    suggestion: Annotated[str, AfterValidator(_in_lines)] = Field(
        "", description="The lines that would replace these in the file."
    )

    @model_validator(mode="after")
    def check_place(self) -> Self:
        if not self.title.strip():
            raise ValueError("title must not be empty")
        if self.end_line is not None and (self.line is None or self.end_line < self.line):
            raise ValueError("end_line must not be before line")
        return self


class IdentifiedFinding(Finding):
    """A finding that is the same in the next turn, even if its lines have moved."""

    id: str = Field(description="16 hexadecimal digits, made of rule, path and the words of the lines.")


def count_severities(severities: Iterable[str]) -> str:
    """Return how many findings have each severity, such as `1 blocker, 3 minor`; empty: there are none."""
    counts = Counter(severities)
    return ", ".join(f"{counts[severity]} {severity}" for severity in SEVERITIES if counts[severity])


def pack_findings(base: str | None, findings: Iterable[IdentifiedFinding]) -> bytes:
    """Encode a turn's findings for the database; `base`: the commit that was read, None in an empty repository."""
    return json.dumps({"base": base, "findings": [finding.model_dump() for finding in findings]}).encode()


def read_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FindingsError(f"it is not JSON in UTF-8: {one_line(str(error))[:_SHOWN]}") from error


def drafts(document: Any) -> list[Any]:
    """Return the findings of a document, as they were written."""
    findings = table(document).get("findings")
    version = table(document).get("version")
    if not isinstance(findings, list):
        raise FindingsError('it must be an object such as {"version": 1, "findings": []}')
    if type(version) is not int or version != 1:
        raise FindingsError('"version" must be 1, the one version that this service knows')
    return findings


def check_findings(written: Iterable[Any], remarks: list[str]) -> Iterator[Finding]:
    """Yield the usable findings; add the problems of the first few others to the remarks."""
    refused = 0
    for number, draft in enumerate(written, 1):
        try:
            yield Finding.model_validate(draft)
        except ValidationError as error:
            refused += 1
            if refused <= _REMARKS:
                remarks.append(f"finding {number} is left out: {one_line(first_fault(error))[:_SHOWN]}")
    if refused > _REMARKS:
        remarks.append(f"{plural(refused - _REMARKS, 'further finding')} left out")


def sarif_drafts(document: Any, root: str) -> Iterator[dict[str, object]]:
    """Yield the results as drafts of findings; `root` is the path at which the agent sees the checkout.

    Results that were suppressed, or that no longer hold, are left out.
    """
    document = table(document)
    if document.get("version") != "2.1.0" or not isinstance(document.get("runs"), list):
        raise FindingsError('it must be SARIF with "version": "2.1.0" and "runs"')
    for run in map(table, document["runs"]):
        tool = table(run.get("tool"))
        components = [table(tool.get("driver")), *map(table, items(tool.get("extensions")))]
        rules = {_text(rule.get("id")): rule for part in components for rule in map(table, items(part.get("rules")))}
        tool_rules = [table(rule) for rule in items(components[0].get("rules"))]
        for result in map(table, items(run.get("results"))):
            if not result.get("suppressions") and result.get("baselineState") != "absent":
                yield _sarif_draft(result, rules, tool_rules, root)


def _sarif_draft(
    result: dict[str, Any], rules: Mapping[str, dict[str, Any]], tool_rules: Sequence[dict[str, Any]], root: str
) -> dict[str, object]:
    """The draft of one result; `rules` are all of its run by id, `own` those of the tool itself, by index."""
    reference = table(result.get("rule"))
    index = result.get("ruleIndex", reference.get("index"))
    by_index = tool_rules[index] if type(index) is int and 0 <= index < len(tool_rules) and not reference else {}
    rule_id = _text(result.get("ruleId")) or _text(reference.get("id")) or _text(by_index.get("id"))
    rule = rules.get(rule_id, by_index)
    location = table(table(next(iter(items(result.get("locations"))), None)).get("physicalLocation"))
    region = table(location.get("region"))
    message = _sarif_message(table(result.get("message")), rule)
    short = _text(table(rule.get("shortDescription")).get("text"))
    title, _, _ = (message or short or rule_id).strip().partition("\n")
    line, end = region.get("startLine"), region.get("endLine")
    # A region that ends before the first column of a line ends with the line before.
    if isinstance(end, int) and isinstance(line, int) and end > line and region.get("endColumn") == 1:
        end -= 1
    configured = table(rule.get("defaultConfiguration")).get("level")
    level = _text(result.get("level")) or _text(configured) or "warning"
    try:
        score = float(_text(table(rule.get("properties")).get("security-severity")) or "0")
    except ValueError:
        score = 0.0
    return {
        "rule": rule_id[:100],
        "severity": "blocker" if score >= _CRITICAL else _SARIF_SEVERITIES.get(level, "minor"),
        "path": _path(table(location.get("artifactLocation")).get("uri"), root),
        "line": line,
        "end_line": None if line is None else end,
        "title": title if len(title) <= _MAX_TITLE else f"{title[:_MAX_TITLE]}…",
        "message": "" if message == title else message[:_MAX_MESSAGE],
    }


def _sarif_message(message: dict[str, Any], rule: dict[str, Any]) -> str:
    """The text of a message, or the rule's message string that it names, with its placeholders filled in."""
    message_string = table(table(rule.get("messageStrings")).get(_text(message.get("id"))))
    text = _text(message.get("text")) or _text(message.get("markdown")) or _text(message_string.get("text"))
    text = text[:_MAX_MESSAGE]
    for number, argument in enumerate(items(message.get("arguments"))[:20]):
        text = text.replace(f"{{{number}}}", _text(argument)[:_MAX_ARGUMENT])[: 2 * _MAX_MESSAGE]
    return text.strip()


def _path(uri: Any, root: str) -> Any:
    """The path of a file URI, relative to the checkout; the check of the finding refuses anything else."""
    if not isinstance(uri, str):
        return uri
    try:
        parts = urlsplit(uri)
    except ValueError:
        return ""
    if parts.scheme not in {"", "file"} or parts.netloc not in {"", "localhost"}:
        return ""
    return unquote(parts.path).removeprefix(f"{root.rstrip('/')}/")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
