"""Certificates made on the spot: each signs itself, so its own file is the authority to trust."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    """A key pair for a server."""

    file: Path
    """The certificate; also what a client has to trust."""
    key: Path

    def server_context(self) -> ssl.SSLContext:
        """Return what a TLS server needs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file, self.key)
        return context


def make_certificate(folder: Path, names: str = "DNS:localhost,IP:127.0.0.1") -> Certificate:
    """Make a certificate for the names, in the form of subjectAltName."""
    made = Certificate(folder / "server.pem", folder / "server.key")
    folder.mkdir(parents=True, exist_ok=True)
    request = ["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2"]
    places = ["-keyout", str(made.key), "-out", str(made.file)]
    subject = ["-subj", "/CN=a test server", "-addext", f"subjectAltName={names}"]
    subprocess.run(["openssl", *request, *places, *subject], check=True, capture_output=True)
    return made
