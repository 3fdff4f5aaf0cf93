"""Secrets: found by their shape, and never repeated by the one who found them."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from service.reviewer.checks.subject import FileCheck
from service.reviewer.finding import Finding, Rule, Severity, Topic
from service.reviewer.source import Source

_CURE: Final = "Revoke it now, because history keeps it; read it from the environment or a secret store instead."
TOKEN: Final = Rule(
    "secret-token",
    Severity.BLOCKER,
    Topic.SECURITY,
    "Whoever can read the repository can use this credential.",
    _CURE,
)
KEY: Final = Rule(
    "secret-private-key",
    Severity.BLOCKER,
    Topic.SECURITY,
    "Whoever can read the repository can act as the owner of this key.",
    "Replace the key pair everywhere it is trusted, and keep the new one out of the repository.",
)
URL: Final = Rule(
    "secret-in-url",
    Severity.MAJOR,
    Topic.SECURITY,
    "The address holds a password, and addresses end up in logs and shell histories.",
    _CURE,
)
ASSIGNED: Final = Rule(
    "secret-assignment",
    Severity.MAJOR,
    Topic.SECURITY,
    "A random-looking value is given to a name that says secret.",
    "If it is a real one, revoke it and read it from the environment; if not, make it look like the placeholder it is.",
)
ENV_FILE: Final = Rule(
    "env-file",
    Severity.MAJOR,
    Topic.SECURITY,
    "Environment files hold what differs between machines, credentials first of all.",
    "Remove it, add it to .gitignore, and commit a .env.example without values.",
)


@dataclass(frozen=True, slots=True)
class _Shape:
    label: str
    hints: tuple[str, ...]
    """One of these, in lower case, is in every match; looking for them first makes most files cost nothing."""
    pattern: re.Pattern[str]


_SHAPES: Final = (
    _Shape("AWS access key", ("akia", "asia"), re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    _Shape(
        "GitHub token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})\b"),
    ),
    _Shape(
        "GitLab token",
        ("glpat-", "gldt-", "glptt-", "glrt-", "glcbt-", "glsoat-"),
        re.compile(r"\bgl(?:pat|dt|ptt|rt|cbt|soat)-[A-Za-z0-9_\-]{20,64}\b"),
    ),
    _Shape("Slack token", ("xox",), re.compile(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,250}\b")),
    _Shape(
        "Slack webhook",
        ("hooks.slack.com",),
        re.compile(r"hooks\.slack\.com/services/T[A-Z0-9]{6,12}/B[A-Z0-9]{6,12}/[A-Za-z0-9]{20,32}"),
    ),
    _Shape("Stripe key", ("k_live_",), re.compile(r"\b[rs]k_live_[0-9A-Za-z]{16,255}\b")),
    _Shape("Google API key", ("aiza",), re.compile(r"\bAIza[0-9A-Za-z_\-]{35}(?![0-9A-Za-z_\-])")),
    _Shape("Anthropic key", ("sk-ant-",), re.compile(r"\bsk-ant-[A-Za-z0-9_\-]{24,255}")),
    _Shape(
        "OpenAI key", ("sk-",), re.compile(r"\bsk-(?:proj-|svcacct-)?(?=[A-Za-z_\-]*[0-9])[A-Za-z0-9_\-]{32,255}\b")
    ),
    _Shape("npm token", ("npm_",), re.compile(r"\bnpm_[A-Za-z0-9]{36}\b")),
    _Shape("PyPI token", ("pypi-age",), re.compile(r"\bpypi-AgE[A-Za-z0-9_\-]{40,255}")),
    _Shape("SendGrid key", ("sg.",), re.compile(r"\bSG\.[A-Za-z0-9_\-]{22}\.[A-Za-z0-9_\-]{43}")),
    _Shape(
        "JSON web token",
        (".eyj",),
        re.compile(r"\beyJ[A-Za-z0-9_\-]{10,2000}\.eyJ[A-Za-z0-9_\-]{10,2000}\.[A-Za-z0-9_\-]{20,1000}"),
    ),
)
_KEY_BLOCK: Final = re.compile(r"-----BEGIN (?:[A-Z]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY: Final = re.compile(r"[A-Za-z0-9+/=]{32,}|^(?:Proc-Type|DEK-Info|Version):", re.MULTILINE)
_KEY_BODY_WITHIN: Final = 400
_URL: Final = re.compile(r"://([^\s/:@'\"<>]{0,80}):([^\s/:@'\"<>]{4,200})@[A-Za-z0-9.\-]+")
_WORDS: Final = ("secret", "passw", "pwd", "token", "key")
_NAMED: Final = re.compile(
    r"""(?i)(?:secret|passw(?:or)?d|pwd|token|api_?key|access_?key|private_?key|auth_?key)[\w.\-]{0,20}
    ["']?\s{0,4}(?:=>?|:=?)\s{0,4}["']([^"'\s]{12,200})["']""",
    re.VERBOSE,
)
_HIDDEN_RUN: Final = re.compile(r"[A-Za-z0-9+/=]{40,}")
_PLACEHOLDER: Final = re.compile(
    r"(?i)example|sample|placeholder|change.?me|replace|your[-_]|dummy|fake|redacted|xxx|\.\.\.|\*\*\*|[${<%]|123456|abcdef"
)
_COMMON_PASSWORDS: Final = frozenset({"password1", "pass123", "passw0rd", "p@ssw0rd"})
_ASSIGNED_BITS: Final = 3.5
_HIDDEN_BITS: Final = 4.5
_LOCAL_HOST: Final = re.compile(r"[^.]*\Z|(?:127|10|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.[\d.]*\Z")
_ENV_NAME: Final = re.compile(r"\.env(?:\.(?!example|sample|template|dist|test|ci)[\w-]+)?\Z")
_SHOWN: Final = 4

_Look = Callable[[Source, int, str], Finding | None]


def entropy(text: str) -> float:
    """Bits a character, as its letters are distributed."""
    total = len(text)
    return -sum(n / total * math.log2(n / total) for n in Counter(text).values()) if total else 0.0


def redacted(text: str) -> str:
    """The text with everything that looks like a credential replaced."""
    for shape in _SHAPES:
        text = shape.pattern.sub(f"[{shape.label} redacted]", text)
    text = _URL.sub(lambda found: found[0].replace(f":{found[2]}@", ":[redacted]@"), text)
    text = _NAMED.sub(lambda found: found[0].replace(found[1], "[redacted]"), text)
    return _HIDDEN_RUN.sub(lambda run: "[redacted]" if entropy(run[0]) > _HIDDEN_BITS else run[0], text)


def _look(source: Source) -> Iterator[Finding]:
    """A line is reported once, by the strongest rule that matches."""
    if _ENV_NAME.match(source.name) and "=" in source.text and not source.fixture:
        yield Finding(ENV_FILE, source.path, 0, "An environment file is committed.")
    yield from _lines(source)
    for block in _KEY_BLOCK.finditer(source.text):
        if _KEY_BODY.search(source.text, block.end(), block.end() + _KEY_BODY_WITHIN):
            line = source.text.count("\n", 0, block.start()) + 1
            yield _finding(KEY, source, line, "A private key begins here.", block[0])


def _lines(source: Source) -> Iterator[Finding]:
    found: dict[int, Finding] = {}
    for shape in _SHAPES:
        _keep(found, source, shape.hints, partial(_token, shape=shape))
    if "@" in source.text:
        _keep(found, source, ("://",), _password)
    _keep(found, source, _WORDS, _assignment)
    yield from found.values()


def _keep(found: dict[int, Finding], source: Source, hints: tuple[str, ...], look: _Look) -> None:
    """Look at the lines that hold a hint and have no finding yet."""
    for number in source.lines_with(*hints):
        seen = look(source, number, source.line(number)) if number not in found else None
        if seen is not None:
            found[number] = seen


def _token(source: Source, number: int, line: str, shape: _Shape) -> Finding | None:
    found = shape.pattern.search(line)
    if found is None or _PLACEHOLDER.search(found[0]):
        return None
    seen = f"{shape.label}: {found[0][:_SHOWN]}… ({len(found[0])} characters, redacted)."
    return _finding(TOKEN, source, number, seen, redacted(line))


def _password(source: Source, number: int, line: str) -> Finding | None:
    url = _URL.search(line)
    if url is None or _PLACEHOLDER.search(url[0]):
        return None
    host = url[0].rpartition("@")[2]
    # Documentation is full of such addresses: a plain word and a host of one's own machine are no leak.
    if _LOCAL_HOST.match(host) or url[2].isalpha() or url[2].lower() in _COMMON_PASSWORDS:
        return None
    return _finding(URL, source, number, f"A password for {host}, redacted.", redacted(line))


def _assignment(source: Source, number: int, line: str) -> Finding | None:
    found = _NAMED.search(line)
    if found is None or not _random(found[1]):
        return None
    return _finding(ASSIGNED, source, number, f"A value of {len(found[1])} characters, redacted.", redacted(line))


def _random(value: str) -> bool:
    """Whether a value looks drawn rather than written: digits and letters, much entropy, no placeholder."""
    mixed = bool(re.search("[0-9]", value)) and bool(re.search("[A-Za-z]", value))
    return mixed and entropy(value) >= _ASSIGNED_BITS and not _PLACEHOLDER.search(value)


def _finding(rule: Rule, source: Source, line: int, message: str, anchor: str) -> Finding:
    """A secret among the material of tests is most likely made up, and so only noted."""
    severity = Severity.NOTE if source.fixture or (source.test and rule is not TOKEN) else None
    return Finding(rule, source.path, line, message, anchor, severity)


CHECK: Final = FileCheck((TOKEN, KEY, URL, ASSIGNED, ENV_FILE), _look)
