"""SARIF 2.1.0, as linters and scanners write it: its results as findings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from service.findings.document import FindingsError
from service.text import items, table

_SEVERITIES: Final = {"error": "major", "warning": "minor", "note": "note", "none": "note"}
_CRITICAL: Final = 9.0
"""The `security-severity` (0 to 10) from which on GitHub calls an alert critical."""
_LONGEST: Final = 4_000
_TITLE: Final = 200
_ARGUMENT: Final = 400


def drafts(document: Any, root: str) -> Iterator[dict[str, object]]:
    """Yield the results as drafts of findings; `root` is the path at which the agent sees the checkout.

    Results that were suppressed, or that no longer hold, are left out.

    Raises:
        FindingsError: it is not SARIF 2.1.0.
    """
    document = table(document)
    if document.get("version") != "2.1.0" or not isinstance(document.get("runs"), list):
        raise FindingsError('it must be SARIF with "version": "2.1.0" and "runs"')
    for run in map(table, document["runs"]):
        tool = table(run.get("tool"))
        components = [table(tool.get("driver")), *map(table, items(tool.get("extensions")))]
        rules = {_text(rule.get("id")): rule for each in components for rule in map(table, items(each.get("rules")))}
        own = [table(rule) for rule in items(components[0].get("rules"))]
        for result in map(table, items(run.get("results"))):
            if not result.get("suppressions") and result.get("baselineState") != "absent":
                yield _draft(result, rules, own, root)


def _draft(
    result: Mapping[str, Any], rules: Mapping[str, Mapping[str, Any]], own: Sequence[Mapping[str, Any]], root: str
) -> dict[str, object]:
    reference = table(result.get("rule"))
    index = result.get("ruleIndex", reference.get("index"))
    by_index = own[index] if type(index) is int and 0 <= index < len(own) and not reference else {}
    rule_id = _text(result.get("ruleId")) or _text(reference.get("id")) or _text(by_index.get("id"))
    rule = rules.get(rule_id, by_index)
    location = table(table(next(iter(items(result.get("locations"))), None)).get("physicalLocation"))
    region = table(location.get("region"))
    # The text of the message, or the rule's message string that it names, its placeholders filled.
    given = table(result.get("message"))
    message = _text(given.get("text")) or _text(given.get("markdown"))
    if not message:
        strings = table(rule.get("messageStrings"))
        message = _text(table(strings.get(_text(given.get("id")))).get("text"))
    message = message[:_LONGEST]
    for number, argument in enumerate(items(given.get("arguments"))[:20]):
        message = message.replace(f"{{{number}}}", _text(argument)[:_ARGUMENT])[: 2 * _LONGEST]
    message = message.strip()
    short = _text(table(rule.get("shortDescription")).get("text")) or message
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
        "severity": "blocker" if score >= _CRITICAL else _SEVERITIES.get(level, "minor"),
        "path": _path(table(location.get("artifactLocation")).get("uri"), root),
        "line": line,
        "end_line": None if line is None else end,
        "title": title if len(title) <= _TITLE else f"{title[:_TITLE]}…",
        "message": "" if message == title else message[:_LONGEST],
    }


def _path(uri: Any, root: str) -> Any:
    """The path of a file URI, relative to the checkout; the check of the finding refuses anything else."""
    if not isinstance(uri, str):
        return uri
    try:
        parts = urlsplit(uri)
    except ValueError:
        return ""
    if parts.scheme not in {"", "file"} or (parts.netloc and parts.netloc != "localhost"):
        return ""
    path = unquote(parts.path)
    return path.removeprefix(f"{root.rstrip('/')}/")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
