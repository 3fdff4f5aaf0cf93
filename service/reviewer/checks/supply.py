"""Dependencies: what is fetched from elsewhere without saying which version."""

import re
from collections.abc import Iterator
from typing import Final

from service.reviewer.checks.subject import FileCheck
from service.reviewer.finding import Finding, Rule, Severity, Topic
from service.reviewer.source import Source

UNPINNED: Final = Rule(
    "unpinned-requirement",
    Severity.NOTE,
    Topic.DEPENDENCIES,
    "Two installations from this file can differ, and a bad release arrives by itself.",
    "Pin exact versions, best with hashes (pip-compile, uv pip compile).",
)
IMAGE: Final = Rule(
    "image-latest",
    Severity.MINOR,
    Topic.DEPENDENCIES,
    "The image is another one tomorrow, so a build cannot be repeated.",
    "Name a version, best with its digest.",
)
ACTION: Final = Rule(
    "action-branch",
    Severity.MINOR,
    Topic.DEPENDENCIES,
    "Whoever can push to that branch runs code with this workflow's secrets.",
    "Name a release's full commit.",
)
PIPED: Final = Rule(
    "curl-to-shell",
    Severity.MINOR,
    Topic.SECURITY,
    "Whatever the server answers is run, half of it when the connection breaks.",
    "Download, check a pinned hash, then run.",
)

_REQUIREMENTS: Final = re.compile(r"(?:^|[-_.])requirements(?:[-_.][\w-]+)*\.txt\Z|(?:^|/)requirements/[^/]+\.txt\Z")
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][\w.\-]*(?:\[[^\]]*\])?\s*(?P<rest>.*)")
_FROM: Final = re.compile(r"FROM\s+(?:--\S+\s+)?(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE)
_USES: Final = re.compile(r"^\s*-?\s*uses:\s*[\"']?([\w.\-]+/[\w./\-]+)@(main|master|develop|latest)\b")
_PIPED: Final = re.compile(r"\b(?:curl|wget)\b[^|#\n]{0,300}\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b")
_SCRIPTS: Final = frozenset({".sh", ".bash", ".yml", ".yaml", ".mk"})


def _requirements(source: Source) -> Iterator[Finding]:
    if not _REQUIREMENTS.search(source.path):
        return
    loose = [(number, line) for number, line in enumerate(source.lines, start=1) if _is_loose(line)]
    if loose:
        names = ", ".join(line.partition("#")[0].strip()[:40] for _, line in loose[:5])
        more = f" and {len(loose) - 5} more" if len(loose) > 5 else ""  # noqa: PLR2004 — as many as are named
        yield Finding(UNPINNED, source.path, loose[0][0], f"No exact version: {names}{more}.")


def _is_loose(line: str) -> bool:
    bare = line.partition(" #")[0].strip()
    found = _REQUIREMENT.match(bare)
    return found is not None and "==" not in found["rest"] and "@" not in found["rest"] and "://" not in bare


def _images(source: Source) -> Iterator[Finding]:
    if not (source.name.startswith(("Dockerfile", "Containerfile")) or source.suffix == ".dockerfile"):
        return
    stages: set[str] = {"scratch"}
    for number, line in enumerate(source.lines, start=1):
        found = _FROM.match(line)
        if found is None:
            continue
        image = found[1]
        tag = image.rpartition("/")[2].partition(":")[2]
        known = image.lower() in stages or "$" in image or "@sha256:" in image
        if not known and tag in {"", "latest"}:
            yield Finding(IMAGE, source.path, number, image[:200], line)
        if found[2]:
            stages.add(found[2].lower())


def _workflows(source: Source) -> Iterator[Finding]:
    if ".github/workflows/" not in f"{source.path}":
        return
    for number, line in enumerate(source.lines, start=1):
        found = _USES.match(line)
        if found:
            yield Finding(ACTION, source.path, number, f"{found[1]}@{found[2]}", line)


def _pipes(source: Source) -> Iterator[Finding]:
    named = source.suffix in _SCRIPTS or source.name in {"Makefile", "Dockerfile", "Containerfile"}
    if not named or source.foreign or ("curl" not in source.text and "wget" not in source.text):
        return
    for number, line in enumerate(source.lines, start=1):
        if _PIPED.search(line):
            yield Finding(PIPED, source.path, number, line.strip()[:160], line)


CHECKS: Final = (
    FileCheck((UNPINNED,), _requirements),
    FileCheck((IMAGE,), _images),
    FileCheck((ACTION,), _workflows),
    FileCheck((PIPED,), _pipes),
)
