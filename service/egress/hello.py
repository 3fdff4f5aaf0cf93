"""The first message of a TLS connection (RFC 8446, 4.1.2): for which server it is."""

import socket
from collections.abc import Iterator
from typing import Final

_HEADER, _RECORD_HEADER = 4, 5
_MAJOR_VERSION: Final = 3
_LONGEST: Final = 1 << 16
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_ENCRYPTED_HELLO: Final = 0xFE0D


class NotTlsError(Exception):
    """The bytes are not TLS, or hide the server's name."""


def read_hello(connection: socket.socket) -> tuple[bytes, str]:
    """Read a connection's first message; return all bytes that were read, and the name in it, in lower case.

    Raises:
        NotTlsError: It is none, or its name cannot be trusted to be the only one.
        OSError: The connection ended or stood still.
    """
    read = hello = b""
    while len(hello) < _HEADER or len(hello) < _HEADER + int.from_bytes(hello[1:4]):
        header = _exactly(connection, _RECORD_HEADER)
        length = int.from_bytes(header[3:5])
        if header[0] != _HANDSHAKE or header[1] != _MAJOR_VERSION or len(read) + length > _LONGEST:
            raise NotTlsError("it is not TLS")
        body = _exactly(connection, length)
        read, hello = read + header + body, hello + body
    if hello[0] != _CLIENT_HELLO:
        raise NotTlsError("it is not TLS")
    try:
        extensions = dict(_extensions(hello[_HEADER:]))
        if _ENCRYPTED_HELLO in extensions:
            raise NotTlsError("its server's name is encrypted")
        # A list with one entry: its length, the kind, the name's length, the name.
        name = extensions[_SERVER_NAME][5:].decode("ascii")
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise NotTlsError("it names no server") from error
    return read, name.lower()


def _extensions(body: bytes) -> Iterator[tuple[int, bytes]]:
    at = 2 + 32
    at += 1 + body[at]
    at += 2 + int.from_bytes(body[at : at + 2])
    at += 1 + body[at]
    end = at + 2 + int.from_bytes(body[at : at + 2])
    at += 2
    while at + 4 <= end:
        length = int.from_bytes(body[at + 2 : at + 4])
        yield int.from_bytes(body[at : at + 2]), body[at + 4 : at + 4 + length]
        at += 4 + length


def _exactly(connection: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        piece = connection.recv(length - len(found))
        if not piece:
            raise ConnectionError("ended early")
        found += piece
    return found
