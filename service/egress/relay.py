"""The relay: gives a program without a network the service's proxies, as ports on its loopback interface.

`relay.py PORT=SOCKET... -- COMMAND...` listens on the ports, leaves a process that carries each connection to its unix
socket, and becomes the command. It runs as a script, with nothing but the standard library.
"""

import contextlib
import os
import socket
import sys
import threading


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Carry bytes one way until the source ends."""
    try:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
    finally:
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def join(first: socket.socket, second: socket.socket) -> None:
    """Carry bytes both ways until both have ended."""
    back = threading.Thread(target=pump, args=(second, first), daemon=True)
    back.start()
    pump(first, second)
    back.join()


def _carry(connection: socket.socket, path: str) -> None:
    with connection, socket.socket(socket.AF_UNIX) as proxy:
        try:
            proxy.connect(path)
        except OSError:
            return
        join(connection, proxy)


def _serve(listener: socket.socket, path: str) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_carry, args=(connection, path), daemon=True).start()


def main() -> None:
    at = sys.argv.index("--")
    ports = [word.partition("=") for word in sys.argv[1:at]]
    listeners = [(socket.create_server(("127.0.0.1", int(port))), path) for port, _, path in ports]
    command = sys.argv[at + 1 :]
    first = os.fork()
    if first == 0:
        # A grandchild: the command must not find a child that it does not know.
        if os.fork() == 0:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nowhere, stream)
            for listener, path in listeners[1:]:
                threading.Thread(target=_serve, args=(listener, path), daemon=True).start()
            _serve(*listeners[0])
        os._exit(0)
    os.waitpid(first, 0)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)


if __name__ == "__main__":
    main()
