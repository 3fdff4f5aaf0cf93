"""The text of a review: text from outside made inert, and the marks by which the service finds its comments."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final
from urllib.parse import quote

from service.findings.document import SEVERITIES, IdentifiedFinding
from service.text import fence_of, not_closing, printable

MARK: Final = "<!-- runwarden:"
"""The beginning of a mark; text from outside cannot hold one where marks are read."""
_FENCED: Final = re.compile(r"^(`{3,})[^\n`]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)
# Without pipes: in a row of a table they end a cell, and with it the code.
_CODE: Final = re.compile(r"(?<!`)(`+)(?!`)([^\n|]+?)(?<!`)\1(?!`)")
_SPECIAL: Final = re.compile(r"[\\\[`$~]")
_MENTION: Final = re.compile(r"@(?=\w)|#(?=\d)|(?<!\w)!(?=\d)")
_COMMAND: Final = re.compile(r"(?m)^([ \t]*(?:>[ \t]*)*)/(?=\w)")
_LONGEST_LIST: Final = 30_000
"""The characters of the list; GitHub accepts 65,536 for the whole text, with the data in its mark."""
_REMEMBERED: Final = 500


def inert(text: str) -> str:
    """Return text from outside as Markdown without mentions, links, images, HTML, commands and closed issues."""
    text = not_closing(printable(text.replace("\r", "")))
    parts, at = [], 0
    for block in _FENCED.finditer(text):
        parts += [_prose(text[at : block.start()]), fenced(block[2].removesuffix("\n"))]
        at = block.end()
    return "".join([*parts, _prose(text[at:])])


def _prose(text: str) -> str:
    parts, at = [], 0
    # Backslashes are doubled outside of code, so none can turn the backtick after it into text.
    for code in _CODE.finditer(text):
        parts += [_escaped(text[at : code.start()]), code[0]]
        at = code.end()
    return _disarmed("".join([*parts, _escaped(text[at:])]))


def _disarmed(text: str) -> str:
    return _COMMAND.sub("\\1\u200b/", text)


def _escaped(text: str) -> str:
    # The forges look for mentions in rendered text: an entity would become one again.
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return _MENTION.sub("\\g<0>\u200b", _SPECIAL.sub(r"\\\g<0>", text))


def fenced(text: str, kind: str = "") -> str:
    """Return a block of code that its content cannot end."""
    if "```" in text and (disarmed := _disarmed(text)) != text:
        # GitLab ends the block at a shorter fence and obeys what follows: the text is changed, so it is no suggestion.
        text, kind = disarmed, ""
    fence = fence_of(text)
    return f"{fence}{kind}\n{text}\n{fence}"


def in_code(text: str) -> str:
    """Return text from outside as code within a line."""
    fence = fence_of(text, least=1)
    padding = " " if text[:1] in "` " or text[-1:] in "` " else ""
    return f"{fence}{padding}{text}{padding}{fence}"


class Marks:
    """The hidden marks in one agent's comments, by which it finds its own again and leaves those of others alone."""

    def __init__(self, agent: str) -> None:
        key = quote(agent, safe="").replace("-", "%2D")
        self._review = f"{MARK}{key} review "
        self._finding = f"{MARK}{key} finding "
        self._id = re.compile(rf"{re.escape(self._finding)}([0-9a-f]{{16}}) -->\s*\Z")
        self._ticked = re.compile(rf"(?m)^- \[[xX]\] .*{re.escape(self._finding)}([0-9a-f]{{16}}) -->$")

    def finding(self, finding_id: str) -> str:
        """Return the mark of a finding's comment."""
        return f"{self._finding}{finding_id} -->"

    def id_of(self, comment: str) -> str | None:
        """Return the finding of a comment by the mark at its very end; None: the service did not write it."""
        found = self._id.search(comment.replace("\r", ""))
        return None if found is None else found[1]

    def review(self, memory: Mapping[str, Sequence[str]]) -> str:
        """Return the mark of a review, with the data for the next one."""
        kept = {key: list(ids)[-_REMEMBERED:] for key, ids in memory.items()}
        return f"{self._review}{json.dumps(kept, separators=(',', ':'))} -->"

    def memory_of(self, review: str) -> dict[str, set[str]] | None:
        """Return the data in a review of the service, with the ticked findings; None: it is another's review."""
        text = review.replace("\r", "").rstrip()
        _, mark, rest = text.rpartition(self._review)
        if not mark or not rest.endswith(" -->") or "\n" in rest:
            return None
        try:
            document = json.loads(rest.removesuffix(" -->"))
            memory = {key: {str(one) for one in ids} for key, ids in document.items()}
        except (ValueError, AttributeError, TypeError):
            memory = {}
        memory["dismissed"] = memory.get("dismissed", set()) | set(self._ticked.findall(text))
        return memory


def comment(finding: IdentifiedFinding, marks: Marks, *, may_replace: bool) -> str:
    """Return the text of a comment at a line; `may_replace`: it is a single line, which a suggestion can replace."""
    parts = [_head(finding), inert(finding.message)]
    if finding.suggestion:
        parts.append(fenced(finding.suggestion, "suggestion" if may_replace else ""))
    return "\n\n".join([*filter(None, parts), marks.finding(finding.id)])


def body(
    agent: str,
    found: Sequence[IdentifiedFinding],
    listed: Sequence[IdentifiedFinding],
    marks: Marks,
    memory: Mapping[str, Sequence[str]],
    origin: str,
) -> str:
    """Return the text of a review; `listed`: findings on lines outside the diff."""
    counts = [(sum(one.severity == severity for one in found), severity) for severity in SEVERITIES]
    summary = ", ".join(f"{number} {severity}" for number, severity in counts if number) or "nothing"
    lines = [f"{in_code(agent)} found {summary}."]
    if listed:
        items = []
        for one in listed:
            place = one.path if one.line is None else f"{one.path}:{one.line}"
            items.append(f"- [ ] {in_code(place)} {_head(one)} {marks.finding(one.id)}")
        shown = [item for item, size in zip(items, accumulate(map(len, items)), strict=True) if size <= _LONGEST_LIST]
        lines += ["", "Not at a line of this diff:", "", *shown]
        if len(shown) < len(items):
            lines.append(f"- and {len(items) - len(shown)} more")
    cure = "Resolve a thread, or tick a box, and its finding is not posted again."
    return "\n".join([*lines, "", f"{origin} {cure}" if found else origin, "", marks.review(memory)])


def _head(finding: IdentifiedFinding) -> str:
    rule = f" {in_code(finding.rule)}" if finding.rule else ""
    return f"**{finding.severity}**{rule}: {inert(finding.title)}"
