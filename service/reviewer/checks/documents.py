"""Documents: relative links in Markdown that lead nowhere in the tree."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from service.reviewer.checks.paths import resolve
from service.reviewer.checks.subject import Tree, TreeCheck
from service.reviewer.finding import Finding, Rule, Severity, Topic
from service.reviewer.source import Source

BROKEN: Final = Rule(
    "broken-link",
    Severity.MINOR,
    Topic.DOCS,
    "Readers of the document arrive at a page that does not exist.",
    "Correct the path, or remove the link.",
)

_LINK: Final = re.compile(r"!?\[[^\]\n]{0,300}\]\(\s{0,3}<?([^\s()<>]{1,400})>?(?:\s[^)\n]{0,200})?\)")
_DEFINITION: Final = re.compile(r"^ {0,3}\[[^\]\n^]{1,100}\]:\s{1,4}<?([^\s<>]{1,400})>?")
_FENCE: Final = re.compile(r"^ {0,3}(?:```|~~~)")
_CODE: Final = re.compile(r"`[^`\n]{0,500}`")
_ELSEWHERE: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.\-]*:|//|#|\{|\$|<|@")
_SUFFIXES: Final = (".md", ".markdown")


def _look(tree: Tree) -> Iterator[Finding]:
    """The documents under review; and, when the branch removed files, all other documents, too."""
    for source in tree.sources.values():
        if source.suffix in _SUFFIXES and not source.foreign and not source.fixture:
            yield from _broken(tree, source, only=None)
    if not tree.gone:
        return
    for path in tree.entries:
        source_elsewhere = tree.read(path) if path not in tree.sources and path.endswith(_SUFFIXES) else None
        if source_elsewhere is not None and not source_elsewhere.foreign:
            yield from _broken(tree, source_elsewhere, only=tree.gone)


def _broken(tree: Tree, source: Source, only: frozenset[str] | None) -> Iterator[Finding]:
    for number, line, target in _links(source):
        bare = unquote(re.split(r"[?#]", target, maxsplit=1)[0])
        resolved = resolve("" if bare.startswith("/") else source.path, bare.lstrip("/"))
        if resolved is None or resolved in tree.entries or resolved.rstrip("/") in tree.folders:
            continue  # out of the tree, as links between the pages of a code host are, or fine
        if only is None or resolved in only:
            seen = f"{target} is not in the tree."
            yield Finding(BROKEN, source.path, number, seen, line, fresh=resolved in tree.gone)


def _links(source: Source) -> Iterator[tuple[int, str, str]]:
    """Line number, line and target of each link that could lead into the tree; code is no link."""
    fenced = False
    for number, line in enumerate(source.lines, start=1):
        if _FENCE.match(line):
            fenced = not fenced
        if fenced or ("](" not in line and "]:" not in line):
            continue
        bare = _CODE.sub("", line)
        found = [link[1] for link in _LINK.finditer(bare)]
        found += [link[1] for link in _DEFINITION.finditer(bare)]
        yield from ((number, line, target) for target in found if not _ELSEWHERE.match(target))


TREE_CHECKS: Final = (TreeCheck((BROKEN,), _look),)
