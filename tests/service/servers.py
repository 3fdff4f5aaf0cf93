"""Servers on loopback that receive the service's mails and events, and certificates with their own authority."""

import email
import email.policy
import ssl
import subprocess
from dataclasses import dataclass, field
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword
from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook, WebhookVerificationError

from tests.lab import Received, Respond, Server, Step, free_port

USER, PASSWORD = "runwarden", "sesame"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A key pair for a server."""

    file: Path
    """The certificate, which clients must trust."""
    key: Path

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file, self.key)
        return context


def make_certificate(folder: Path, names: str = "DNS:localhost,IP:127.0.0.1") -> Certificate:
    """Make a certificate for names in the form of subjectAltName."""
    certificate = Certificate(folder / "server.pem", folder / "server.key")
    folder.mkdir(parents=True, exist_ok=True)
    request = ["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2"]
    places = ["-keyout", str(certificate.key), "-out", str(certificate.file)]
    subject = ["-subj", "/CN=a test server", "-addext", f"subjectAltName={names}"]
    subprocess.run(["openssl", *request, *places, *subject], check=True, capture_output=True)
    return certificate


@dataclass
class MailServer:
    """A real mail server (aiosmtpd) with scripted refusals; `security` as in service.toml."""

    certificate: Certificate | None = None
    security: str = "none"
    login: bool = False
    """Whether it only accepts mail after a login."""
    port: int = field(default_factory=free_port)
    replies: dict[str, str] = field(default_factory=dict)
    """The reply to a recipient, or under the key `data` to a message, instead of accepting it."""
    taken: list[Envelope] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start()

    @property
    def messages(self) -> list[EmailMessage]:
        contents = [one.content for one in self.taken if isinstance(one.content, bytes)]
        found = [email.message_from_bytes(one, policy=email.policy.default) for one in contents]
        return [one for one in found if isinstance(one, EmailMessage)]

    def start(self) -> None:
        options: dict[str, Any] = {}
        if self.certificate is not None:
            options["ssl_context" if self.security == "tls" else "tls_context"] = self.certificate.server_context()
        options |= dict.fromkeys(("require_starttls", "auth_require_tls"), self.security == "starttls")
        options |= {"auth_required": True, "authenticator": _authenticate} if self.login else {}
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port, **options)
        self._controller.start()

    def close(self) -> None:
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


def _authenticate(_server: Any, _session: Any, _envelope: Any, _mechanism: str, login: Any) -> AuthResult:
    right = isinstance(login, LoginPassword) and (login.login, login.password) == (USER.encode(), PASSWORD.encode())
    return AuthResult(success=right, handled=False)


class Receiver(Server):
    """Accepts each event once, by its `webhook-id`, if Standard Webhooks' own library verifies it."""

    def __init__(self) -> None:
        super().__init__()
        self.secret = ""
        self.taken: dict[str, Any] = {}
        """Events by `webhook-id`, in the order of arrival."""
        self.refused: list[Received] = []

    def answer(self, request: Received) -> Step:
        try:
            event = Webhook(self.secret).verify(request.body, request.headers)
        except (EmptyWebhookSecretError, WebhookVerificationError):
            self.refused.append(request)
            return Respond(401)
        self.taken.setdefault(request.headers["webhook-id"], event)
        return Respond(204)

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [event["data"] for event in list(self.taken.values()) if event["type"] == kind]
