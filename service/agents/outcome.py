"""The outcome of an agent's turn, read from its output, since several programs exit with 0 after a failure."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from service.text import items, table

_MAX_LINE: Final = 400
_DEPTH: Final = 4
"""Gateways and programs put the JSON of an error into their own message."""
_TITLE: Final = re.compile(r"<title>([^<]{1,200})</title>", re.IGNORECASE)
_OBJECT_START: Final = re.compile(r"""\{\s*["']\w""")
_MESSAGE: Final = re.compile(
    r"""["'](?:message|detail|error)["']\s*:\s*(?:"((?:[^"\\]|\\.)*)|'((?:[^'\\]|\\.)*))""", re.DOTALL
)
"""The message in JSON that is cut off, or in a dictionary as Python prints it."""
_PLAIN: Final = (
    (re.compile(r"(http\.client\.)?(IncompleteRead|RemoteDisconnected)\([^)]*\)"), "the connection was cut"),
    (re.compile(r"(TypeError: )?fetch failed"), "the connection failed"),
)


def sentence_in(body: str) -> str | None:
    """Return the message in an error's body, which may be JSON, a stream event, HTML or text; None if there is none."""
    start = body.find("{")
    if start >= 0 and (match := _json_message(body, start)) is not None:
        return in_words(match[0]) or None
    if body.lstrip().startswith("<"):
        title = _TITLE.search(body)
        return in_words(title[1]) if title else None
    return in_words(body if start < 0 else body[:start]) or None


def in_words(text: str) -> str:
    """Return a text as one line of at most 400 characters, with the sentences of errors in place of their JSON."""
    text = _without_json(text, _DEPTH)
    for pattern, words in _PLAIN:
        text = pattern.sub(words, text)
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…"


def _without_json(text: str, depth: int) -> str:
    start = text.find("{")
    if start < 0 or depth == 0 or (match := _json_message(text, start)) is None:
        return text
    message, end = match
    # Gemini's errors may be in a list.
    before = re.sub(r"\[\s*$", "", text[:start])
    after = re.sub(r"^\s*\]", "", text[end:])
    return before + _without_json(message, depth - 1) + _without_json(after, depth - 1)


def _json_message(text: str, start: int) -> tuple[str, int] | None:
    """Return the message of the JSON that begins at an offset, and the offset after it; None: it is not JSON."""
    try:
        document, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        if not _OBJECT_START.match(text, start):
            return None
        match = _MESSAGE.search(text, start)
        return "" if match is None else (match[1] or match[2] or "").replace("\\n", " ").replace("\\", ""), len(text)
    return (_message(document), end) if isinstance(document, dict) else None


def _message(document: dict[str, object]) -> str:
    """Return the message of an error as Anthropic, OpenAI, Gemini or a gateway in front of them puts it."""
    for holder in (document.get("error"), document.get("response"), *items(document.get("errors"))[:1], document):
        if isinstance(holder, str) and holder.strip():
            return holder
        if isinstance(holder, dict):
            inner = holder.get("error")
            for value in (holder.get("message"), holder.get("detail"), inner):
                if isinstance(value, str) and value.strip():
                    return value
            if isinstance(message := table(inner).get("message"), str):
                return message
    return ""


Ending = Literal["refused", "cut_short"]
"""How a model's answer ended, if not as it should."""
_Unanswered = Literal["out_of_budget", "no_key", "not_permitted", "rate_limited", "model_unreachable"]
Reason = Ending | _Unanswered | Literal["needs_answer", "timed_out", "idle", "setup_failed", "failed"]
_MAX_LINE_LENGTH: Final = 1 << 20
_MAX_TEXT: Final = 4000
_SHOWN_LINES: Final = 3
"""How many of its last lines explain why a program failed."""
_SEARCHED_LINES: Final = 40
_EVENT: Final = re.compile(rb"^\{.*", re.MULTILINE)
_EDIT: Final = "\n<<<<<<< SEARCH"
"""Begins an edit in an answer of aider's models."""
_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_KINDS: Final[dict[Reason, re.Pattern[str]]] = {
    "out_of_budget": re.compile(
        r"""max.?budget | budget\ (of|is|exceeded) | insufficient.?quota | credit\ balance | exceeded\ your.*quota""",
        re.IGNORECASE | re.VERBOSE,
    ),
    "no_key": re.compile(
        r"""(invalid|missing|incorrect|no|not\ find|without).{0,24}(api.?key|credential)
        | api.?key.{0,24}(invalid|missing|required|not\ (found|set)) | authentication.?error | unauthorized | \b401\b
        | run\ /login | not\ logged\ in | must\ specify\ the\ \w+_API_KEY""",
        re.IGNORECASE | re.VERBOSE,
    ),
    "cut_short": re.compile(
        r"output\ token\ (maximum|limit) | max_(output_|completion_)?tokens | MAX_TOKENS", re.IGNORECASE | re.VERBOSE
    ),
    "model_unreachable": re.compile(
        r"""connection.?(error|refused|reset|failed) | ECONN | ENOTFOUND | EAI_AGAIN | fetch\ failed
        | unable\ to\ connect | timed?\ ?out | cannot\ be\ reached | unreachable | network\ error | stream\ disconnected
        | error\ sending\ request | \b50[234]\b""",
        re.IGNORECASE | re.VERBOSE,
    ),
    "refused": re.compile(r"refus(ed|al) | content.?(policy|filter) | safety", re.IGNORECASE | re.VERBOSE),
}
"""Patterns of failure messages by reason; the first match decides."""


@dataclass(frozen=True, slots=True)
class TurnFailure:
    """Why a turn did not succeed."""

    reason: Reason
    what: str
    """What went wrong, and how to fix it unless `fix` says that."""
    fix: str = ""

    @property
    def text(self) -> str:
        return f"{self.what}; {self.fix}" if self.fix else self.what


@dataclass(slots=True)
class AgentReport:
    """An agent's reports about itself so far."""

    session: str | None = None
    """The name with which the program resumes its session."""
    summary: str | None = None
    """Its last message."""
    error: str | None = None
    ending: Ending | None = None
    printed: str = ""
    """Its output since its last answer, if it prints text alone."""
    ended: bool = False
    """Whether it reported that it finished, after which it does nothing more."""
    heard: list[str] = field(default_factory=list)
    """The ids of the messages that reached it while it worked."""


_FIXES: Final[dict[Reason, str]] = {
    "out_of_budget": "give the account of its key more credit, or raise the limit",
    "no_key": "give it a valid key",
    "cut_short": "ask for less at once, or continue the run",
    "model_unreachable": "check the address of its model, and continue the run when that answers again",
    "refused": "say it in other words, or ask another model",
    "failed": "its log has more",
}
_ENDED: Final[dict[Reason, str]] = {
    "refused": "{} refused the task",
    "cut_short": "the answer of {} was cut at its limit of tokens",
}
Listener = Callable[[dict[str, object], AgentReport], None]
_ANSWERED: Final[dict[str, Ending | None]] = {"end_turn": None, "refusal": "refused", "max_tokens": "cut_short"}
"""The stop reasons of ACP with an answer, if only a part of one."""


def _failure(kind: Reason, words: str, model: str = "the model", subject: str = "") -> TurnFailure:
    reason = f": {words.rstrip('.')}" if words else ""
    return TurnFailure(kind, f"{_ENDED.get(kind, subject).format(model)}{reason}; {_FIXES[kind]}")


REFUSED: Final = _failure("refused", "")


def claude(event: dict[str, object], report: AgentReport) -> None:
    """Read an event of Claude Code's `stream-json`; "success" and `is_error` may come together."""
    report.session = _session(event.get("session_id")) or report.session
    if event.get("type") == "user" and event.get("isReplay"):
        report.heard.append(str(event.get("uuid")))
        report.ended = False
    elif event.get("type") == "assistant":
        report.ended = False
    elif event.get("type") == "result":
        report.ended = True
        subtype = str(event.get("subtype") or "")
        result = _text(event.get("result"))
        report.ending = "refused" if event.get("stop_reason") == "refusal" else None
        if event.get("is_error") or subtype not in {"", "success"}:
            report.error = result or "; ".join(map(str, items(event.get("errors")))) or subtype
            report.error += f" ({subtype})" if subtype.startswith("error_") else ""
        else:
            report.summary = result


def codex(event: dict[str, object], report: AgentReport) -> None:
    """Read an event of `codex exec --json`."""
    kind, item = event.get("type"), table(event.get("item"))
    report.session = _session(event.get("thread_id")) or report.session
    if kind == "item.completed" and item.get("type") == "agent_message":
        report.summary = _text(item.get("text"))
    elif kind == "turn.completed":
        report.ended, report.error = True, None
    elif kind in ("turn.failed", "error"):
        report.ended = kind == "turn.failed"
        report.error = _text(table(event.get("error")).get("message")) or _text(event.get("message")) or str(kind)


def is_remark(update: dict[str, Any]) -> bool:
    """Whether Claude Code marks a message as its own instead of the model's."""
    return table(table(update.get("_meta")).get("claudeCode")).get("kind") == "informational"


def acp(event: dict[str, object], report: AgentReport) -> None:
    """Read a report of `acp_client.py`; a message comes in pieces, which calls of tools end."""
    kind, update = event.get("acp"), table(event.get("update"))
    if kind == "session":
        report.session = _session(event.get("id"))
    elif kind == "update" and update.get("sessionUpdate") == "agent_message_chunk" and not is_remark(update):
        text = table(update.get("content")).get("text")
        report.printed = f"{report.printed}{text if isinstance(text, str) else ''}"[:_MAX_TEXT]
        report.summary = _text(report.printed)
    elif kind == "update" and str(update.get("sessionUpdate")).startswith("tool_call"):
        report.printed = ""
    elif kind == "heard":
        report.heard += map(str, items(event.get("ids")))
        report.printed = ""
    elif kind == "end":
        reason = str(event.get("stop_reason"))
        report.ended, report.ending = True, _ANSWERED.get(reason)
        report.error = None if reason in _ANSWERED else f"it stopped before its answer ({in_words(reason)})"
    elif kind == "error":
        report.error = _text(event.get("message")) or "error"


def aider(line: str, report: AgentReport) -> None:
    """Read a line of aider's output; aider exits with 0 even after an error of the model."""
    # aider keeps one unnamed history in its home.
    report.session = "history"
    if line.startswith("Tokens: "):
        report.ended, report.error = True, None
        report.summary, report.printed = _text(report.printed), ""
    elif line == ">>>>>>> REPLACE":
        report.printed = report.printed.removesuffix(_EDIT)
    elif line.startswith(("Repo-map: ", "Retrying in ", "Empty response received from LLM")):
        report.printed = ""
    elif re.match(r"litellm\.\w*Error|.*API (provider|key).*(missing|not found)|Missing these environment", line):
        report.error = line
    elif not report.printed.endswith(_EDIT) and not line.startswith("```"):
        report.printed = f"{report.printed}\n{line}"[-_MAX_TEXT:]


@dataclass(eq=False)
class OutcomeReader:
    """Reads an agent's output, JSON and text by lines; a program with a reader must report that it finished."""

    listener: Listener | None = None
    of_line: Callable[[str, AgentReport], None] | None = None
    report: AgentReport = field(default_factory=AgentReport)
    _held: bytes = b""
    _last: list[str] = field(default_factory=list)

    def feed(self, piece: bytes) -> None:
        whole, newline, self._held = (self._held + piece).rpartition(b"\n")
        if self.of_line is not None:
            lines = whole.split(b"\n") if newline else []
        else:
            # A program may print millions of lines: only events and the last lines are read.
            last = [line for line in whole.rsplit(b"\n", _SEARCHED_LINES)[-_SEARCHED_LINES:] if line.strip()]
            lines = [*[line for line in last if line[:1] != b"{"][-_SHOWN_LINES:], *_EVENT.findall(whole)]
        for line in lines:
            self._read_line(line)
        if len(self._held) > _MAX_LINE_LENGTH:
            self._held = b""

    @property
    def is_over(self) -> bool:
        """Whether the program reported in an event that it finished, and no further work since."""
        return self.listener is not None and self.report.ended

    def failure(self, status: int, ending: Ending | None = None, model: str = "the model") -> TurnFailure | None:
        """Return why the turn failed; None: it succeeded.

        `ending`: how the model's last answer ended, if the program does not report it; `model`: who answered.
        """
        self._read_line(self._held)
        self._held, report = b"", self.report
        error = in_words(report.error or "")
        endings = {report.ending, None if report.error else ending}
        for kind in _ENDED:
            if kind in endings:
                return _failure(kind, error, model)
        if report.error:
            message = report.error
            words = error
            subject = "the agent says" if error else "the agent failed"
        elif status:
            message = words = in_words(" ".join(self._last))
            subject = f"the agent exited with status {status}"
        elif (self.listener or self.of_line) and not report.ended:
            return TurnFailure("failed", "the agent ended without a result; its last lines are in the log")
        else:
            return None
        reason: Reason = next((reason for reason, pattern in _KINDS.items() if pattern.search(message)), "failed")
        return _failure(reason, words, model, subject)

    def _read_line(self, line: bytes) -> None:
        if line.startswith(b"{") and self.listener is not None:
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                return
            if isinstance(event, dict):
                self.listener(event, self.report)
            return
        text = line.decode("utf-8", "replace").strip()
        if text:
            self._last = [*self._last[1 - _SHOWN_LINES :], in_words(text)]
            if self.of_line is not None:
                self.of_line(text[:_MAX_TEXT], self.report)


def _text(value: object) -> str | None:
    return value[:_MAX_TEXT].strip() or None if isinstance(value, str) else None


def _session(value: object) -> str | None:
    # The session becomes an argument in the next turn.
    if isinstance(value, str) and _SESSION.fullmatch(value):
        return value
    return None
