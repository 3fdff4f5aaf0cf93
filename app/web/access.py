"""Who may come in: a link opens once, for one browser, which is then known by its cookie."""

import secrets
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Final

COOKIE: Final = "runwarden_pass"
_SECRET_BYTES: Final = 32


def _secret() -> str:
    return secrets.token_urlsafe(_SECRET_BYTES)


@dataclass(slots=True)
class Access:
    """The link that is open now, and the passes that were given for earlier ones."""

    room: str = field(default_factory=_secret, repr=False)
    """The folder everything is served from. Cookies do not tell ports apart: without a folder that nobody can guess,
    every other server on this machine that the browser visits would be sent the pass."""
    _link: str | None = field(default=None, repr=False)
    _passes: set[str] = field(default_factory=set, repr=False)

    def new_link(self) -> str:
        """A link's secret; an earlier one that was not used is void from now on."""
        self._link = _secret()
        return self._link

    def exchange(self, link: str) -> str | None:
        """A pass for the link's secret, once; None: it is not, or no longer, good."""
        if self._link is None or not _same(link, self._link):
            return None
        self._link = None
        given = _secret()
        self._passes.add(given)
        return given

    def admits(self, shown: str | None) -> bool:
        """Whether this is a pass that was given."""
        return shown is not None and any(_same(shown, given) for given in self._passes)


def _same(one: str, other: str) -> bool:
    return compare_digest(one.encode("utf-8", "replace"), other.encode())
