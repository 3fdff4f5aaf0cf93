"""Failures of a model's provider: a table of causes, each with its fix, and the times when limits expire."""

import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import h11

from service.agents.options import ModelAccess
from service.agents.outcome import Reason, TurnFailure, sentence_in
from service.clock import seconds_until
from service.egress.usage import EventStream
from service.network import ProxyError

_LATER: Final = "continue the run when it answers again"
Consequence = Literal["ask_again", "stop", "pass_on"]
"""The service asks again while the program waits, or it stops the agent, or it passes the answer on to the program."""


@dataclass(frozen=True, slots=True)
class _Cause:
    statuses: str
    """A pattern of the status; empty: any."""
    words: str
    """A pattern in the answer's body; empty: any body."""
    then: Consequence
    reason: Reason
    fix: str
    """The fix, with `{key}` for the variable that holds the key, and `{provider}`."""


# The first that fits counts. OpenAI says `insufficient_quota` with 429; Gemini refuses a bad key with 400, Anthropic an
# account without credit. "exceeded your current quota" is ambiguous: Gemini's limit expires, OpenAI's does not.
_CAUSES: Final = (
    _Cause(
        "4..",
        r"insufficient_quota|credit balance is too low|billing_(hard_limit|error)"
        r"|insufficient.(balance|credit|funds)|reached your specified .{0,20}usage limit",
        "stop",
        "out_of_budget",
        "the account of the key in {key} has no credit left, or has reached its limit: correct that with {provider}",
    ),
    _Cause("402", "", "stop", "out_of_budget", "pay up the account of the key in {key} with {provider}"),
    _Cause("401", "", "stop", "no_key", "set {key} to a valid key"),
    _Cause("400", r"API.?KEY.?(INVALID|not valid|expired)", "stop", "no_key", "set {key} to a valid key"),
    _Cause(
        "4..",
        r"(location|country|region)[^\"]{0,40}not supported",
        "stop",
        "not_permitted",
        "{provider} does not serve the place of this machine: set base_url to an address that does",
    ),
    _Cause(
        "40[034]",
        r"model_not_found|not.found.{0,40}model|DeploymentNotFound|access to (the )?model"
        r"|model.{0,80}(not found|not exist|no access|not have access|not supported)",
        "pass_on",
        "not_permitted",
        "set the model's name to one that the key in {key} may use",
    ),
    _Cause(
        "403",
        "",
        "stop",
        "not_permitted",
        "the key in {key} is not permitted this: check its permissions, its region and its access to the model",
    ),
    _Cause(
        "413|400",
        r"too.(long|large)|context.(length|window)|maximum number of tokens|tokens.{0,20}(exceed|maximum)",
        "pass_on",
        "failed",
        "the conversation is longer than the model takes: divide the task, or choose another model",
    ),
    _Cause("404", "", "pass_on", "failed", "check base_url and the model's name"),
    _Cause("408|429", "", "ask_again", "rate_limited", "raise the limits with {provider}, or run fewer turns"),
    _Cause("5..", "", "ask_again", "model_unreachable", _LATER),
    _Cause("3..", "", "pass_on", "failed", "it leads elsewhere, where the key is not sent: correct base_url"),
    _Cause("", "", "pass_on", "failed", "the program and this model may not fit: the log has more"),
)
_STREAM_ERRORS: Final = {b"overloaded": 529, b"rate_limit": 429}
"""The status that a provider would have answered if it had not begun the stream; otherwise 500."""
_STREAM_ERROR: Final = re.compile(rb'\s*\{\s*("type":\s*"error"|"error":\s*\{)')
_ERROR_EVENT: Final = re.compile(rb"\s*event:\s*error\b")
_RETRY_INFO: Final = re.compile(r'retryDelay\\*"\s*:\s*\\*"([0-9.]+s)')
_RESET: Final = re.compile(r"(anthropic-ratelimit-[a-z-]+)-reset|x-ratelimit-reset-([a-z-]+)")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that got no usable answer."""

    failure: TurnFailure
    then: Consequence
    wait_s: float | None = None
    """How long the provider asks to wait; None: it does not say."""


def of_answer(
    access: ModelAccess, model: str, status: int, headers: Mapping[str, str], body: bytes, now_s: float
) -> Refusal:
    """Explain an answer other than success; `headers` in lower case; `now_s`: the present, in seconds since 1970."""
    text = body.decode("utf-8", "replace")
    fitting = (cause for cause in _CAUSES if re.match(cause.statuses, str(status)))
    cause = next(cause for cause in fitting if re.search(cause.words, text, re.IGNORECASE))
    sentence = sentence_in(text)
    fix = cause.fix.format(key=access.key_env or "key_command", provider=access.shown)
    if access.key_env is None and cause.reason == "no_key":
        fix = "let key_command print a valid key"
    problem = f"{access.shown} answered {status}{f' for {model}' if model else ''}"
    reason = f"{problem}: {sentence.rstrip('.')}" if sentence else f"{problem} and gave no reason"
    return Refusal(TurnFailure(cause.reason, reason, fix), cause.then, _wait_s(headers, text, now_s))


def failed_stream(start: bytes) -> int | None:
    """Return the status for a stream that begins with an error; None: it begins with an answer."""
    stream = EventStream()
    name, data = next((event for events in (stream.feed(start), stream.end()) for event in events), (b"", b""))
    if name != b"error" and not _STREAM_ERROR.match(data) and not _ERROR_EVENT.match(start):
        return None
    return next((status for word, status in _STREAM_ERRORS.items() if word in start), 500)


def unreachable(access: ModelAccess, model: str, error: Exception, silent_s: float | None) -> Refusal:
    """Explain a broken connection, or silence for `silent_s` (None: there was no connection yet)."""
    model = model or "a list of models"
    then: Consequence = "ask_again"
    fix = _LATER
    if silent_s is not None and isinstance(error, TimeoutError):
        text = f"{access.shown} took a request for {model} and was silent for {silent_s:g} s"
    elif isinstance(error, ssl.SSLCertVerificationError):
        reason = f"its certificate is not valid: {error.verify_message}"
        then = "stop"
        text = f"{access.shown} was not asked for {model}, as {reason}"
        fix = "correct base_url, or SSL_CERT_FILE"
    elif isinstance(error, ProxyError):
        text = f"{access.shown} cannot be reached for {model}: {error}"
    else:
        reason = next((words for kind, words in _BROKEN.items() if isinstance(error, kind)), "the connection failed")
        text = f"{access.shown} cannot be reached for {model}: {reason}"
        fix = f"check base_url and the network, and {_LATER}"
    return Refusal(TurnFailure("model_unreachable", text, fix), then)


def broken_off(access: ModelAccess, model: str, error: bytes | None) -> TurnFailure:
    """Explain an answer that broke off; `error`: the provider's own event about it."""
    sentence = sentence_in((error or b"").decode("utf-8", "replace"))
    reason = f": {sentence.rstrip('.')}" if sentence else ", and the program did not get another"
    return TurnFailure("model_unreachable", f"{access.shown} broke off an answer of {model}{reason}; continue the run")


_BROKEN: Final[dict[type[Exception], str]] = {
    ConnectionRefusedError: "the connection was refused",
    ConnectionError: "the connection was cut before an answer",
    h11.RemoteProtocolError: "the server there does not speak HTTP",
    socket.gaierror: "its name is not known",
    ssl.SSLError: "the server there does not speak TLS",
    TimeoutError: "it accepts no connection",
}
"""Exceptions in words; the first class that fits counts."""


def _wait_s(headers: Mapping[str, str], body: str, now_s: float) -> float | None:
    """Return the seconds until the provider accepts requests again, if it states them, otherwise None."""
    for text in (f"{headers.get('retry-after-ms', '')}ms", headers.get("retry-after", "")):
        if (wait_s := seconds_until(text, now_s)) is not None:
            return wait_s
    if match := _RETRY_INFO.search(body):
        return seconds_until(match[1], now_s)
    # If the answer states several limits, only exhausted ones hold requests back.
    spent = []
    for name, value in headers.items():
        if match := _RESET.fullmatch(name):
            left = headers.get(f"{match[1]}-remaining" if match[1] else f"x-ratelimit-remaining-{match[2]}", "")
            if left == "0" or headers.get(f"{match[1]}-status") == "rejected":
                spent.append(seconds_until(value, now_s))
    return max((wait_s for wait_s in spent if wait_s is not None), default=None)
