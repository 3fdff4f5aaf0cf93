"""The one check of a base address, before it may carry a token."""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

_LOCAL_NAMES: Final = frozenset({"localhost"})
_LONGEST_LABEL: Final = 63


def base_address(text: str) -> str:
    """The service's base address in its one normal form: lower-case scheme and host, no trailing slash.

    Raises:
        ValueError: It is not an https address (http is for loopback only), or holds a user, a query, a fragment, a port
            out of range or a path that would be rewritten; the message says which.
    """
    stripped = text.strip()
    if not stripped.isascii() or any(character <= " " or character in '\\"<>^`{|}\x7f' for character in stripped):
        raise ValueError("an address is plain ASCII without blanks: write international names in their xn-- form")
    try:
        parts = urlsplit(stripped)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"this is not a valid address: {error}") from error
    if not host or parts.scheme not in {"http", "https"}:
        raise ValueError("an address begins with https:// and a host, as in https://api.example.com/v1")
    if "@" in parts.netloc:
        raise ValueError("an address holds no user or password: the token has its own setting")
    if parts.query or parts.fragment:
        raise ValueError("a base address has no query and no fragment: end it with the version, as in /v1")
    segments = parts.path.rstrip("/").split("/")[1:]
    if any(segment in {"", ".", ".."} for segment in segments):
        raise ValueError("the path holds an empty, `.` or `..` segment: write it out plainly")
    if not all(0 < len(label) <= _LONGEST_LABEL for label in host.removesuffix(".").split(".")):
        raise ValueError(f"{host!r} cannot be a host name")
    if parts.scheme == "http" and not is_loopback(host):
        raise ValueError("use https: http sends the token in the clear")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}{f':{port}' if port is not None else ''}{parts.path.rstrip('/')}"


def is_loopback(host: str) -> bool:
    """Whether a host name or IP address means this machine."""
    if host in _LOCAL_NAMES:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
