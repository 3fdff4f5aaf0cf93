"""Real mail servers on loopback: aiosmtpd, told what to refuse."""

import email
import email.policy
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword

from tests.lab import free_port
from tests.service.certificates import Certificate

USER, PASSWORD = "runwarden", "sesame"


@dataclass
class MailServer:
    """A mail server; `security` as in service.toml."""

    certificate: Certificate | None = None
    security: str = "none"
    login: bool = False
    """Whether it takes mail only from those who log in."""
    port: int = field(default_factory=free_port)
    replies: dict[str, str] = field(default_factory=dict)
    """What it says to a recipient, or with the key `data` to a message, instead of taking it."""
    taken: list[Envelope] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start()

    @property
    def messages(self) -> list[EmailMessage]:
        """What it took, parsed."""
        contents = [one.content for one in self.taken if isinstance(one.content, bytes)]
        found = [email.message_from_bytes(one, policy=email.policy.default) for one in contents]
        return [one for one in found if isinstance(one, EmailMessage)]

    def start(self) -> None:
        """Listen, again on the same port."""
        options: dict[str, Any] = {}
        if self.certificate is not None:
            options["ssl_context" if self.security == "tls" else "tls_context"] = self.certificate.server_context()
        options |= dict.fromkeys(("require_starttls", "auth_require_tls"), self.security == "starttls")
        options |= {"auth_required": True, "authenticator": _authenticate} if self.login else {}
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port, **options)
        self._controller.start()

    def close(self) -> None:
        """Go away."""
        self._controller.stop()

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Envelope, address: str, _options: Any) -> str:
        if address in self.replies:
            return self.replies[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Envelope) -> str:
        if "data" in self.replies:
            return self.replies["data"]
        self.taken.append(envelope)
        return "250 OK"


def _authenticate(_server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> AuthResult:
    right = isinstance(given, LoginPassword) and (given.login, given.password) == (USER.encode(), PASSWORD.encode())
    return AuthResult(success=right, handled=False)
