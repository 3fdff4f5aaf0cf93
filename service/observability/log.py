"""The log on standard error: one record a line, as text or JSON, without secrets and control characters."""

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from structlog import processors
from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.stdlib import ExtraAdder, ProcessorFormatter, add_log_level, add_logger_name

from service.errors import ServiceError
from service.ids import TOKEN_PREFIX
from service.secrets import MASK, Secrets, of_environment
from service.settings import LogFormat
from service.text import one_line, printable

FIELDS: Final = (
    *("request_id", "actor", "token_id", "organization", "method", "route", "status", "duration_ms"),
    *("run_id", "turn"),
)
"""The fields of a record besides its message; other fields that a library adds are left out."""
_HEAD: Final = ("timestamp", "level", "logger", "event")
_SECRET_NAME: Final = re.compile(r"TOKEN|SECRET|PASSW|KEY|CREDENTIAL|AUTH|HEADERS", re.IGNORECASE)
"""An environment variable with one of these in its name is taken for a secret."""
_CREDENTIAL: Final = re.compile(
    r"(?P<scheme>\b(?:bearer|basic)\s+)[\w.~+/=-]{6,}"
    r"|(?P<login>://)[^\s/@]+:[^\s/@]+(?=@)"
    rf"|\b(?:{TOKEN_PREFIX}|rwlab_|gh[a-z]_|github_pat_|glpat-)[\w-]{{16,}}",
    re.IGNORECASE,
)
"""Credentials recognized by form: an Authorization header, the login in a URL, a token."""
_PLAIN: Final = re.compile(r"[^\s\"=]+")
Event = MutableMapping[str, Any]
bound: Final = bound_contextvars
"""Returns a context manager in which every record of this thread or task carries the fields."""


@dataclass(repr=False)
class Masks:
    """The values that are masked in every record: those of environment variables that hold secrets."""

    used: Callable[[], Iterable[str]] = tuple
    """Returns the variables that hosts, webhooks and agents use now."""
    _names: set[str | None] = field(default_factory=set)
    _values: set[str] = field(default_factory=set)
    _secrets: Secrets = field(default_factory=lambda: Secrets({}))

    def add(self, names: Iterable[str | None]) -> None:
        self._names.update(names)
        self.renew()

    def renew(self) -> None:
        """Mask the variables' current values and their earlier ones."""
        names = {*self._names, *filter(_SECRET_NAME.search, os.environ)}
        self._values |= set(of_environment(names).values())
        self._secrets = Secrets({value: value for value in self._values})

    def mask(self, text: str) -> str:
        """Return the text without the values and without credentials recognized by form."""
        text = self._secrets.mask(text)
        return _CREDENTIAL.sub(lambda match: f"{match['scheme'] or match['login'] or ''}{MASK}", text)


def start_log(form: LogFormat) -> Masks:
    """Send every record of this process, including those of libraries, to standard error.

    The returned masks already hold the variables that are named like secrets; others can be added.
    """
    masks = Masks()
    masks.renew()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(form, masks))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    # DBOS writes to standard error by itself unless it finds a handler.
    logging.getLogger("dbos").addHandler(logging.NullHandler())

    def log_thread_failure(failure: threading.ExceptHookArgs) -> None:
        name = "?" if failure.thread is None else failure.thread.name
        logging.getLogger(__name__).critical("the thread %s died of an error", name, exc_info=failure.exc_value)

    threading.excepthook = log_thread_failure
    return masks


def formatter(form: LogFormat, masks: Masks) -> logging.Formatter:
    def clean(logger: object, method: str, event: Event) -> Event:
        """Mask secrets, and show control characters; put the fields in order."""
        error = (event.get("exc_info") or (None, None))[1]
        if isinstance(error, ServiceError):
            # Only the text, since only a bug needs a traceback.
            del event["exc_info"]
            event["event"] = f"{event['event']}: {error}"
        event = processors.format_exc_info(logger, method, event)
        for key, value in event.items():
            if value is not None and not isinstance(value, bool | int | float):
                event[key] = masks.mask(printable(str(value)) if key == "exception" else one_line(str(value)))
        return {key: event[key] for key in (*_HEAD, *FIELDS, *event) if key in event}

    return ProcessorFormatter(
        foreign_pre_chain=[merge_contextvars, add_logger_name, add_log_level, ExtraAdder(allow=FIELDS)],
        processors=[
            ProcessorFormatter.remove_processors_meta,
            processors.TimeStamper(fmt="iso", utc=True),
            clean,
            # Only ASCII, so that a reader of the log need not know its encoding.
            (lambda _, __, event: json.dumps(event)) if form == "json" else _as_text,
        ],
    )


def _as_text(_logger: object, _method: str, event: Event) -> str:
    line = f"{event['timestamp']} {event['level'].upper()} {event['logger']}: {event['event']}"
    for key, value in event.items():
        if key not in {*_HEAD, "exception"}:
            text = str(value)
            line += f" {key}={text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)}"
    # Indented, so that no line of a traceback looks like a record.
    return line + "".join(f"\n    {row}" for row in event.get("exception", "").splitlines())
