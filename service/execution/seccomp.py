"""A seccomp filter: system calls with which an agent could hold memory that belongs to none of its processes."""

import platform
import struct
from typing import Final

_CALLS: Final = {
    # System V memory stays when its segment is detached; keys live in the kernel, for the whole user.
    "x86_64": (0xC000003E, (29, 248, 249, 250)),
    "aarch64": (0xC00000B7, (194, 217, 218, 219)),
}
"""Machine to its audit architecture, and its numbers of shmget, add_key, request_key and keyctl."""
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | 1
"""EPERM."""
_OTHER_ABI: Final = 0x40000000
"""From this number on x86_64 means another table of calls."""


def filter_program() -> bytes | None:
    """Return the filter for this machine, as bubblewrap reads it; None where the calls' numbers are not known."""
    known = _CALLS.get(platform.machine())
    if known is None:
        return None
    architecture, calls = known
    # Each jump counts the instructions to leap over; the last two are "allow" and "refuse".
    checks = len(calls) + 1
    program = [
        _instruction(_LOAD, 4),
        _instruction(_JUMP_EQUAL, architecture, otherwise=checks + 2),
        _instruction(_LOAD, 0),
        _instruction(_JUMP_AT_LEAST, _OTHER_ABI, then=checks),
    ]
    program += [_instruction(_JUMP_EQUAL, call, then=checks - 1 - at) for at, call in enumerate(calls)]
    return b"".join([*program, _instruction(_RETURN, _ALLOW), _instruction(_RETURN, _REFUSE)])


def _instruction(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)
