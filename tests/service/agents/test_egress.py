"""The sandbox only reaches listed hosts over TLS at public addresses."""

import contextlib
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from service.agents.allowlist import Entry, RefusedError, addresses_of, decide
from service.agents.options import AgentOptions
from service.network import Host, is_public
from tests.service.servers import make_certificate

Make = Callable[..., Any]
ALLOWED = "allowed.example"


class TlsHost:
    """A TLS server on loopback for `allowed.example` and `other.example`, which counts its clients."""

    def __init__(self, folder: Path) -> None:
        made = make_certificate(folder / "tls", f"DNS:{ALLOWED},DNS:other.example")
        self.authority, context = made.file, made.server_context()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.reached = 0
        self._thread = threading.Thread(target=self._serve, args=(context,), daemon=True)
        self._thread.start()

    def _serve(self, context: ssl.SSLContext) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.reached += 1
            with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
                secured.recv(4096)
                secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")

    def close(self) -> None:
        # Its thread must exit first: SIGCHLD interrupts `accept` if a child exits while the main thread starts the
        # next one, and the kernel repeats the call with the same descriptor number, which a later server may own.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[TlsHost]:
    with contextlib.closing(TlsHost(tmp_path)) as made:
        yield made


@pytest.fixture
def proxied(host: TlsHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rehearse: Make, script: Make) -> Make:
    """Run a shell script with `allowed.example` on its list, which leads to the server on loopback."""
    addresses = {ALLOWED: [("127.0.0.1", host.port)], "other.example": [("127.0.0.1", host.port)]}
    resolve = lambda name, *given, **_: addresses.get(name.text) or addresses_of(name, *given)  # noqa: E731
    monkeypatch.setattr("service.egress.proxies.addresses_of", resolve)
    stage = rehearse()

    def run(source: str) -> Any:
        names = ("CURL_CA_BUNDLE", "SSL_CERT_FILE")
        settings = "".join(f"export {name}={host.authority}\n" for name in names)
        options = {"egress": [ALLOWED, "localhost.example"], "readable": [str(host.authority)], "idle_timeout_s": 120}
        return stage.turn(script(settings + source, **options), "go")

    return run


CLIENTS = (
    "curl -sS --max-time 60 https://{0}/ 2>&1",
    "/usr/bin/python3 -c 'import urllib.request as u; print(u.urlopen(\"https://{0}/\", timeout=60).read())' 2>&1",
)


def test_only_listed_hosts_are_reachable(proxied: Make, host: TlsHost) -> None:
    """Hosts are allowed by name or address; the log has each refusal with the line that would allow it.

    Each client finds the proxy in its environment, and checks the host's certificate itself.
    """
    refused = proxied("; ".join(one.format(name) for name in ("other.example", "192.0.2.7") for one in CLIENTS))
    before = host.reached
    done = proxied("; ".join(one.format(ALLOWED) for one in CLIENTS))

    assert (before, "hello" in refused.log) == (0, False), refused.log
    assert 'egress: other.example was refused; to allow it, add it to the agent: egress = ["other.ex' in refused.log
    assert "egress: 192.0.2.7 was refused" in refused.log
    assert (done.log.count("hello"), host.reached) == (len(CLIENTS), len(CLIENTS)), done.log


# Talks to the proxy directly, and connects around it.
SPEAKER = """
exec {python} - <<'END'
import socket, ssl
def ask(target, name, tls=True):
    with socket.create_connection(("127.0.0.1", 3128), 60) as link:
        link.sendall(f"CONNECT {{target}} HTTP/1.1\\r\\nHost: {{target}}\\r\\n\\r\\n".encode())
        answer = link.recv(4096).split(b"\\r\\n")[0].decode()
        if "200" not in answer: return answer
        context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
        if not tls:
            link.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n"); return link.recv(100)
        try:
            with context.wrap_socket(link, server_hostname=name) as secured:
                secured.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n"); return secured.recv(100)[:15]
        except OSError as error: return "cut off"
def dial(address):
    try: socket.create_connection(address, 5).close()
    except OSError as error: return "no connection"
    return "connected"
{words}
END
"""


def test_no_other_connection_leaves_the_sandbox(proxied: Make, host: TlsHost) -> None:
    """Addresses, other ports, plain HTTP, direct sockets and other names in the TLS greeting are refused.

    With a fronted host, no name or no TLS, the proxy connects nowhere before it has read the greeting.
    """
    targets = [f"127.0.0.1:{host.port}", "[::1]:443", "169.254.169.254:443", f"{ALLOWED}:22", "localhost:443", "x"]
    words = (
        f"for one in {targets}: print(ask(one, 'x'))\nprint(dial(('127.0.0.1', {host.port})), dial(('192.0.2.7', 443)))"
        f'\nprint(ask("{ALLOWED}:443", "other.example"), ask("{ALLOWED}:443", None), ask("{ALLOWED}:443", "", False))'
    )
    done = proxied(SPEAKER.format(python=Path(sys.executable).resolve(), words=words))
    lines = [line for line in done.log.splitlines() if not line.startswith("egress: ")]

    forbidden = ["HTTP/1.1 403 Forbidden"] * len(targets)
    assert lines == [*forbidden, "no connection no connection", "cut off cut off b''"], done.log
    assert host.reached == 0
    assert f"a connection to {ALLOWED} was refused: it asks for other.example" in done.log


PRIVATE = [
    *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
    *("::1", "::", "fe80::1%eth0", "fd00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::a00:1"),
    *("255.255.255.255", "198.18.0.1", "192.0.2.1", "fec0::1", "::7f00:1", "ff02::1", "fd00:ec2::254"),
]


def test_a_name_with_an_internal_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs an allowed name's DNS can give it any address, including internal ones."""
    found = [
        (socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443))
        for address in (*PRIVATE, "9.9.9.9")
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    assert [address for address in PRIVATE if is_public(address)] == []
    assert addresses_of(Host.parse("evil.example"), 443, None) == [("9.9.9.9", 443)]


def test_an_internal_host_needs_its_address_in_the_list(host: TlsHost, rehearse: Make, script: Make) -> None:
    """An internal host is reached by its name at that address only, or by the address.

    A refused listed host is logged with the reason.
    """
    port = host.port
    listed = [f"registry:{port}=127.0.0.1", f"127.0.0.1:{port}"]
    curl = "curl -skS --noproxy '' --max-time 60 https://{}/ 2>&1"
    asked = (f"registry:{port}", f"127.0.0.1:{port}", f"registry:{port + 1}")
    done = rehearse().turn(script("; ".join(map(curl.format, asked)), egress=listed), "go")

    assert (host.reached, done.log.count("hello")) == (2, 2), done.log
    assert f"egress: registry:{port + 1} was refused (it is listed for port {port}); to allow it" in done.log


def test_the_list_is_taken_literally() -> None:
    """An entry is a name or all below one, with a port or TLS's own.

    An internal host needs a port, and no cloud's metadata address.
    """
    for entry in ("registry.corp:8443=10.1.2.3", "registry:8443=fd00::1", "10.1.2.3:8443"):
        AgentOptions(egress=(entry,))
    refused = ("", "=10.1.2", "=169.254.169.254", "=::ffff:169.254.169.254", "=0.0.0.0")
    refused = tuple(f"registry:8443{address}" for address in refused)
    for entry in (*refused, "registry.corp=10.1.2.3", "*.corp.example:443=10.1.2.3", "169.254.169.254:80"):
        with pytest.raises(ValidationError):
            AgentOptions(egress=(entry,))

    hosts = [("a.example", 443), ("b.a.example", 443), ("evila.example", 443), ("a.example", 8443), ("a.example", 80)]
    for entry, allowed in (("a.example", 0), ("*.a.example", 1), ("a.example:8443", 3)):
        for at, (name, port) in enumerate(hosts):
            with nullcontext() if at == allowed else pytest.raises(RefusedError):
                decide([Entry.parse(entry)], Host.parse(name), port)
