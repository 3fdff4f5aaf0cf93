"""The first message of TLS, as far as it names the server."""

import socket
from collections.abc import Iterator
from typing import Final

from service.errors import ServiceError
from service.network import Host, HostError

_HEADER, _RECORD_HEADER = 4, 5
_MAJOR_VERSION: Final = 3
_LONGEST: Final = 1 << 16
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_ENCRYPTED_HELLO: Final = 0xFE0D


class NotTlsError(ServiceError):
    """The bytes are not TLS, or do not name the server that was asked for."""


def read_hello(connection: socket.socket, begun: bytes, host: Host) -> bytes:
    """Read a connection's first message, of which `begun` has arrived; return all bytes once it names the host.

    A program that asks for an address may name no server.

    Raises:
        NotTlsError: It is not a TLS hello, names another server, or hides the name.
        OSError: The connection ended or timed out.
    """
    read = begun
    hello = b""
    at = 0
    while len(hello) < _HEADER or len(hello) < _HEADER + int.from_bytes(hello[1:4]):
        read = _at_least(connection, read, at + _RECORD_HEADER)
        length = int.from_bytes(read[at + 3 : at + 5])
        if read[at] != _HANDSHAKE or read[at + 1] != _MAJOR_VERSION or not 0 < length <= _LONGEST - at:
            raise NotTlsError("it is not TLS")
        read = _at_least(connection, read, at + _RECORD_HEADER + length)
        hello += read[at + _RECORD_HEADER : at + _RECORD_HEADER + length]
        at += _RECORD_HEADER + length
    if hello[0] != _CLIENT_HELLO:
        raise NotTlsError("it is not TLS")
    try:
        found = list(_extensions(hello[_HEADER : _HEADER + int.from_bytes(hello[1:4])]))
        extensions = dict(found)
        if len(extensions) != len(found):
            raise NotTlsError("it names an extension twice")
        if _ENCRYPTED_HELLO in extensions:
            raise NotTlsError("its server's name is encrypted")
        if host.ip is not None and _SERVER_NAME not in extensions:
            return read
        # A list with one entry: its length, the kind, the name's length, the name.
        entry = extensions[_SERVER_NAME]
        name = entry[5:]
        if entry[:5] != (len(name) + 3).to_bytes(2) + b"\0" + len(name).to_bytes(2):
            raise NotTlsError("it names more than one server")
        named = Host.parse(name.decode("ascii"))
    except (IndexError, KeyError, UnicodeDecodeError, HostError, OverflowError) as error:
        raise NotTlsError("it names no server") from error
    if named != host:
        raise NotTlsError(f"it asks for {named.text}")
    return read


def _extensions(body: bytes) -> Iterator[tuple[int, bytes]]:
    at = 2 + 32
    at += 1 + body[at]
    at += 2 + int.from_bytes(body[at : at + 2])
    at += 1 + body[at]
    end = at + 2 + int.from_bytes(body[at : at + 2])
    if end != len(body):
        raise IndexError("the lengths do not fit")
    at += 2
    while at < end:
        length = int.from_bytes(body[at + 2 : at + 4])
        if at + 4 + length > end:
            raise IndexError("an extension is longer than the message")
        yield int.from_bytes(body[at : at + 2]), body[at + 4 : at + 4 + length]
        at += 4 + length


def _at_least(connection: socket.socket, read: bytes, length: int) -> bytes:
    while len(read) < length:
        piece = connection.recv(length - len(read))
        if not piece:
            raise ConnectionError("ended early")
        read += piece
    return read
