"""The seccomp filter, which forbids system calls with which an agent could hold memory that no limit counts."""

import platform
import struct
from typing import Final

_CALLS: Final = {
    # System V memory stays when its segment is detached; keys live in the kernel, for the whole user.
    "x86_64": (0xC000003E, 157, (29, 248, 249, 250)),
    "aarch64": (0xC00000B7, 167, (194, 217, 218, 219)),
}
"""Machine to its audit architecture, and its numbers of prctl, and of shmget, add_key, request_key and keyctl."""
_SET_DUMPABLE: Final = 4
"""Forbidden to prctl: a process that cannot be dumped hides its files, memory files included, from the service."""
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in the data that a filter sees of a call."""
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
    architecture, control, calls = known
    # Each jump counts the instructions to leap over. The last four look at prctl's argument, allow, and refuse.
    checks = len(calls) + 1
    program = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_JUMP_EQUAL, architecture, otherwise=checks + 5),
        _instruction(_LOAD, _NUMBER),
        _instruction(_JUMP_AT_LEAST, _OTHER_ABI, then=checks + 3),
    ]
    program += [_instruction(_JUMP_EQUAL, call, then=checks + 2 - at) for at, call in enumerate(calls)]
    program += [
        _instruction(_JUMP_EQUAL, control, otherwise=2),
        _instruction(_LOAD, _FIRST_ARGUMENT),
        _instruction(_JUMP_EQUAL, _SET_DUMPABLE, then=1),
    ]
    return b"".join([*program, _instruction(_RETURN, _ALLOW), _instruction(_RETURN, _REFUSE)])


def _instruction(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)
