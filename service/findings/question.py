"""Questions: from a file in the checkout, which is not trusted, or at the end of an agent's last message."""

import errno
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service.findings import FindingsError, collect, cut, read_json
from service.text import one_line, printable

FILE: Final = f"{collect.FOLDER}/question.json"
_MAX_FILE_BYTES: Final = 1 << 20
_MAX_TEXT: Final = 2000
_MAX_CHOICES: Final = 9
_MAX_CHOICE: Final = 200
_MARKS: Final = ("?", "\uff1f", "\u061f", "\u055e", "\u1367")
"""Question marks: Latin, East Asian, Arabic, Armenian and Ethiopic."""
_MARKUP: Final = " \t*_`~\"'()[]{}<>«»“”‘’„‚「」『』"  # noqa: RUF001 — what may stand around a sentence
_CHOICE: Final = re.compile(r"([-*+•]|\(?(\d{1,2}|[A-Za-z])[.):])\s")
_HINT: Final = re.compile(r"\s*\([^()]{1,40}\)\W*$")
"""Such as `(yes/no)` after a question."""
_SENTENCE: Final = re.compile(r"(?<=[.!?\u3002\uff01\uff1f\u061f])[*_`\"')\]]*(?:\s+|(?<=[\u3002\uff01\uff1f]))")
_ASKS: Final = re.compile(
    r"""\b(please|kindly)\ (confirm|advise|choose|pick|decide|tell|clarify|specify|provide|share|let|answer|reply|say)\b
    | \b(let\ me\ know|tell\ me|awaiting|waiting\ for|wait\ for|await)\b
    | \bI\ need\ (you|your|to\ know|a\ decision)\b | \b(your|you)\ (decision|choice|call|answer)\b\W*$
    | \bI('ll|\ will|\ can)\b.{0,80}\bif\ you\ (want|like|wish|prefer|agree|confirm)\b
    | \bif\ you('d|\ would)\ like\b""",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question that an agent needs answered before it continues."""

    question: str
    choices: tuple[str, ...] = ()
    """Answers to choose from; empty: any."""

    @property
    def text(self) -> str:
        """Return it as the reason why the turn did not succeed."""
        choices = f" ({' / '.join(self.choices)})" if self.choices else ""
        return f"the agent asks: {one_line(self.question)}{choices}"


def read_question(tree: Path, mask: Callable[[str], str], remarks: list[str]) -> Question | None:
    """Return the question in the agent's file; None: it wrote no such file. Problems with it are added to the remarks.

    A file that cannot be used is a question as well: the agent did not finish, and its last message may say why.
    """
    try:
        document = read_json(collect.read(tree, FILE, _MAX_FILE_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        kind = "a link is not followed" if error.errno == errno.ELOOP else error.strerror
        return _unusable(f"{FILE} is not read: {kind}", remarks)
    except FindingsError as error:
        return _unusable(f"{FILE} is not used: {error}", remarks)
    question = document.get("question") if isinstance(document, dict) else None
    if not isinstance(question, str) or not question.strip():
        form = '{"question": "…", "choices": []}'
        return _unusable(f"{FILE} is not used: it must be an object such as {form}", remarks)
    choices = document.get("choices") or []
    if not isinstance(choices, list) or not all(isinstance(choice, str) and choice.strip() for choice in choices):
        remarks.append(f"{FILE}: the choices are left out: they must be a list of texts")
        choices = []
    if len(choices) > _MAX_CHOICES:
        remarks.append(f"{FILE}: the first {_MAX_CHOICES} choices are kept, of {len(choices):,}")
    if len(question.strip()) > _MAX_TEXT:
        remarks.append(f"{FILE}: the first {_MAX_TEXT} characters of the question are kept, of {len(question):,}")
    offered = (_clean(one_line(choice.strip()), _MAX_CHOICE, mask) for choice in choices[:_MAX_CHOICES])
    return Question(_clean(question.strip(), _MAX_TEXT, mask), tuple(dict.fromkeys(offered)))


def offer(words: str | None) -> str | None:
    """Return the question or offer at the end of an agent's last message; None if the message only reports.

    It only changes the displayed text: the turn is completed either way.
    """
    lines = [line.strip() for line in (words or "").splitlines() if line.strip()]
    # Choices may follow the question.
    while lines and len(lines) > 1 and _CHOICE.match(lines[-1]):
        lines.pop()
    if not lines:
        return None
    sentences = [text for text in _SENTENCE.split(_HINT.sub("", lines[-1]).strip(_MARKUP)) if text.strip(_MARKUP)]
    asking = [text for text in sentences[-2:] if text.rstrip(_MARKUP).endswith(_MARKS) or _ASKS.search(text)]
    if not asking or asking[-1] is not sentences[-1]:
        return None
    return " ".join(map(str.strip, asking))[-_MAX_TEXT:]


def _unusable(remark: str, remarks: list[str]) -> Question:
    remarks.append(remark)
    return Question("something that cannot be read; the log says why")


def _clean(text: str, limit: int, mask: Callable[[str], str]) -> str:
    # JSON can hold a lone surrogate, and NUL, which the database cannot take.
    return cut(printable(mask(text.encode("utf-8", "replace").decode())), limit)
