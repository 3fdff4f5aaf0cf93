"""Premises: what a process may count on before it starts, or a sentence that says why not."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


class ServiceError(Exception):
    """A process cannot start; the text names the cure."""


@contextlib.contextmanager
def held(lock_file: Path, refusal: str) -> Iterator[None]:
    """Hold a lock until the block or the process ends, however it ends.

    Raises:
        ServiceError: Another process has it; the text is `refusal`.
    """
    with lock_file.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ServiceError(refusal) from error
        yield
