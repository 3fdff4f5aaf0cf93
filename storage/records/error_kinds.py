"""Kinds of errors: one row each, with its exit code, its words, its fix, and whether it passes by itself."""

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct


class ErrorKind(Struct, frozen=True):
    """One kind of error: its words, its fixes and its effects."""

    exit_code: int = 2
    word: str = "not answering"
    """The kind in a few words, for the header."""
    title: str = "The service gives no usable answer"
    """The kind in a sentence without its full stop."""
    fix: str = ""
    """The fix while polling; empty: the error's own message may help."""
    write_fix: str = "Change it and send it again."
    """The fix for a write that the service rejected."""
    setup_fix: str = ""
    """The fix while a profile is set up; empty: the error's own message says more than the title."""
    passes: bool = False
    """Whether the same request may succeed later, without a fix."""
    concerns: Literal["link", "token", "request", "anything"] = "anything"
    """`request`: another request may well succeed."""


_RENEW: Final = "Create an API token in the organization's settings, give it to this profile, then start again."
OTHER_ERROR: Final = ErrorKind(exit_code=8)
"""An error of the service that no row names."""
ERROR_KINDS: Final[Mapping[str, ErrorKind]] = {
    "unreachable": ErrorKind(
        exit_code=8,
        word="service unreachable",
        title="The service cannot be reached",
        fix="Check your network, then base_url in the configuration.",
        passes=True,
        concerns="link",
    ),
    "timed_out": ErrorKind(
        exit_code=8,
        word="service does not answer",
        title="The service does not answer in time",
        fix="The service is slow, or something on the way drops the answer.",
        setup_fix="Is the address right, and is a VPN needed?",
        passes=True,
        concerns="link",
    ),
    "unusable_answer": ErrorKind(
        exit_code=8,
        word="unusable answer",
        title="The service's answer cannot be used",
        fix="Something that is not the service may be answering: check base_url.",
        setup_fix="Is it the service's base address?",
        concerns="link",
    ),
    "mishandled": ErrorKind(
        exit_code=8,
        word="Runwarden failed",
        title="Runwarden cannot use the service's answers",
        fix="It is a mistake of Runwarden itself: the log has more. Please report it.",
        concerns="link",
    ),
    "server_failed": ErrorKind(
        exit_code=8,
        word="service fails",
        title="The service fails to answer",
        setup_fix="Try again later.",
        passes=True,
        concerns="link",
    ),
    "rate_limited": ErrorKind(
        exit_code=5,
        word="rate limited",
        title="The organization's rate limit is spent (429)",
        fix="The whole organization shares this limit. Polls pause for as long as the service asked.",
        write_fix="The organization's rate limit is spent: wait, then send again.",
        setup_fix="Try again in a minute.",
        passes=True,
    ),
    "not_authorized": ErrorKind(
        exit_code=4,
        word="token refused",
        title="The service refused the token (401)",
        fix=_RENEW,
        write_fix="The token is missing, unknown or has expired: give this profile a new one.",
        setup_fix="Is it complete, for this service, and not expired?",
        concerns="token",
    ),
    "forbidden": ErrorKind(
        exit_code=4,
        word="not permitted",
        title="The token may not do this (403)",
        write_fix="Use a token that may do this.",
        concerns="token",
    ),
    "token": ErrorKind(
        exit_code=2,
        word="no token",
        title="There is no usable token",
        fix="Give this profile a token, then start again.",
        concerns="token",
    ),
    "not_found": ErrorKind(
        exit_code=7,
        word="address not found",
        title="There is no such API at this address (404)",
        fix="Check base_url in the configuration: it ends in the version, such as /v1.",
        write_fix="Check the names.",
        setup_fix="The address ends in the version, such as /v1.",
        concerns="request",
    ),
    "rejected": ErrorKind(
        exit_code=2, word="request rejected", title="The service rejected the request", concerns="request"
    ),
    "database_busy": ErrorKind(passes=True),
    "not_offered": ErrorKind(exit_code=7),
    "waited_too_long": ErrorKind(exit_code=3),
    "blocked": ErrorKind(exit_code=6),
    "not_delivered": ErrorKind(exit_code=1),
    "interrupted": ErrorKind(exit_code=130),
    "uncertain": OTHER_ERROR,
    **dict.fromkeys(("usage", "config", "read_only", "missing_extra", "demo", "invalid", "duplicate"), ErrorKind()),
    **dict.fromkeys(("already_asked", "doubtful_id", "ambiguous", "not_confirmed", "wrong_state"), ErrorKind()),
}


def error_kind(kind: str | None) -> ErrorKind:
    """The row of a kind of error; for an unknown kind, the row of any service error."""
    return ERROR_KINDS.get(kind or "", OTHER_ERROR)
