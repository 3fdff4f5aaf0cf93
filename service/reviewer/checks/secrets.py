"""Secrets: found by their shape, and never repeated in a finding."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from service.reviewer.finding import CheckRule, ReviewFinding, Severity
from service.reviewer.source import SourceFile

_SHAPES: Final = {
    "AWS access key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})\b",
    "GitLab token": r"\bgl(?:pat|dt|ptt|rt|cbt|soat)-[A-Za-z0-9_\-]{20,64}\b",
    "Slack token": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,250}\b",
    "Slack webhook": r"hooks\.slack\.com/services/T[A-Z0-9]{6,12}/B[A-Z0-9]{6,12}/[A-Za-z0-9]{20,32}",
    "Stripe key": r"\b[rs]k_live_[0-9A-Za-z]{16,255}\b",
    "Google API key": r"\bAIza[0-9A-Za-z_\-]{35}(?![0-9A-Za-z_\-])",
    "Anthropic key": r"\bsk-ant-[A-Za-z0-9_\-]{24,255}",
    "OpenAI key": r"\bsk-(?:proj-|svcacct-)?(?=[A-Za-z_\-]*[0-9])[A-Za-z0-9_\-]{32,255}\b",
    "npm token": r"\bnpm_[A-Za-z0-9]{36}\b",
    "PyPI token": r"\bpypi-AgE[A-Za-z0-9_\-]{40,255}",
    "SendGrid key": r"\bSG\.[A-Za-z0-9_\-]{22}\.[A-Za-z0-9_\-]{43}",
    "JSON web token": r"\beyJ[A-Za-z0-9_\-]{10,2000}\.eyJ[A-Za-z0-9_\-]{10,2000}\.[A-Za-z0-9_\-]{20,1000}",
}
_LABELS: Final = tuple(_SHAPES)
_TOKEN: Final = re.compile("|".join(f"({shape})" for shape in _SHAPES.values()))
_TOKEN_HINTS: Final = (
    *("akia", "asia", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "gldt-", "glptt-", "glrt-"),
    *("glcbt-", "glsoat-", "xox", "hooks.slack.com", "k_live_", "aiza", "sk-", "npm_", "pypi-age", "sg.", ".eyj"),
)
"""Every known form of token contains one of these, compared in lower case."""
_KEY_BLOCK: Final = re.compile(r"-----BEGIN (?:[A-Z]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY: Final = re.compile(r"[A-Za-z0-9+/=]{32,}|^(?:Proc-Type|DEK-Info|Version):", re.MULTILINE)
_KEY_BODY_WITHIN: Final = 400
"""Characters after the first line of a key block in which its body begins; a mention in prose has none."""
_URL: Final = re.compile(r"://([^\s/:@'\"<>]{0,80}):([^\s/:@'\"<>]{4,200})@([A-Za-z0-9.\-]+)")
_NAMED: Final = re.compile(
    r"""(?i)(?:secret|passw(?:or)?d|pwd|token|api_?key|access_?key|private_?key|auth_?key)[\w.\-]{0,20}
    ["']?\s{0,4}(?:=>?|:=?)\s{0,4}["']([^"'\s]{12,200})["']""",
    re.VERBOSE,
)
_HIDDEN_RUN: Final = re.compile(r"[A-Za-z0-9+/=]{40,}")
"""A long run that is redacted when it looks random, whatever stands before it."""
_PLACEHOLDER: Final = re.compile(
    r"(?i)example|sample|placeholder|change.?me|replace|your[-_]|dummy|fake|redacted|xxx|\.\.\.|\*\*\*|[${<%]|123456|abcdef"
)
_ASSIGNED_BITS: Final = 3.5
_HIDDEN_BITS: Final = 4.5
"""The entropy, in bits for each character, from which a text counts as random."""
_LOCAL_HOST: Final = re.compile(r"[^.]*\Z|(?:127|10|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.[\d.]*\Z")
_ENV_NAME: Final = re.compile(r"\.env(?:\.(?!example|sample|template|dist|test|ci)[\w-]+)?\Z")
_SHOWN: Final = 4
"""Characters of a token that a finding shows."""
_READ: Final = 10_000


def redacted(text: str) -> str:
    """The text with everything that looks like a credential replaced."""
    text = _TOKEN.sub(lambda found: f"[{_label(found)} redacted]", text)
    text = _URL.sub(lambda found: found[0].replace(f":{found[2]}@", ":[redacted]@"), text)
    text = _NAMED.sub(lambda found: found[0].replace(found[1], "[redacted]"), text)
    return _HIDDEN_RUN.sub(lambda run: "[redacted]" if _entropy(run[0]) > _HIDDEN_BITS else run[0], text)


def excerpt(what: object, limit: int) -> str:
    """The beginning of a text, redacted before it is cut: half a secret would not be recognized."""
    return redacted(str(what)[:_READ].strip())[:limit]


def _label(found: re.Match[str]) -> str:
    return _LABELS[(found.lastindex or 1) - 1]


def _entropy(text: str) -> float:
    """The Shannon entropy of the text, in bits for each character."""
    total = len(text)
    return -sum(n / total * math.log2(n / total) for n in Counter(text).values()) if total else 0.0


def _lines(source: SourceFile) -> Iterator[ReviewFinding]:
    """Report a line once, by the strongest rule that matches."""
    known: set[int] = set()
    for rule, seen in (
        (CheckRule.SECRET_TOKEN, _tokens),
        (CheckRule.SECRET_IN_URL, _passwords),
        (CheckRule.SECRET_ASSIGNMENT, _values),
    ):
        for number, line, message in seen(source):
            if number not in known:
                yield _finding(rule, source, number, message, redacted(line))
            known.add(number)


def _tokens(source: SourceFile) -> Iterator[tuple[int, str, str]]:
    for number, line, found in source.search(_TOKEN, *_TOKEN_HINTS):
        if not _PLACEHOLDER.search(found[0]):
            yield number, line, f"{_label(found)}: {found[0][:_SHOWN]}… ({len(found[0])} characters, redacted)."


def _passwords(source: SourceFile) -> Iterator[tuple[int, str, str]]:
    for number, line, url in source.search(_URL, "://"):
        # Documentation is full of examples, with a plain word as the password or with a local host.
        if not (url[2].isalpha() or _PLACEHOLDER.search(url[0]) or _LOCAL_HOST.match(url[3])):
            yield number, line, f"A password for {url[3]}, redacted."


def _values(source: SourceFile) -> Iterator[tuple[int, str, str]]:
    for number, line, found in source.search(_NAMED, "secret", "passw", "pwd", "token", "key"):
        value = found[1]
        mixed = bool(re.search("[0-9]", value)) and bool(re.search("[A-Za-z]", value))
        if mixed and _entropy(value) >= _ASSIGNED_BITS and not _PLACEHOLDER.search(value):
            yield number, line, f"A random-looking value of {len(value)} characters, redacted."


def _files(source: SourceFile) -> Iterator[ReviewFinding]:
    """Report environment files and private keys."""
    if _ENV_NAME.match(source.name) and "=" in source.text and not source.is_fixture:
        yield ReviewFinding(CheckRule.ENV_FILE, source.path, 0, "An environment file is committed.")
    for block in _KEY_BLOCK.finditer(source.text):
        if _KEY_BODY.search(source.text, block.end(), block.end() + _KEY_BODY_WITHIN):
            line = source.text.count("\n", 0, block.start()) + 1
            yield _finding(CheckRule.SECRET_PRIVATE_KEY, source, line, "A private key begins here.", block[0])


def _finding(rule: CheckRule, source: SourceFile, line: int, message: str, anchor: str) -> ReviewFinding:
    """A finding; only a note in tests and their data, where a secret is most likely made up."""
    made_up = source.is_fixture or (source.is_test and rule is not CheckRule.SECRET_TOKEN)
    return ReviewFinding(rule, source.path, line, message, anchor, Severity.NOTE if made_up else None)


CHECKS: Final = (_files, _lines)
