"""The supervisor: a small process between worker and agent that ends only after everything the agent started.

It runs as a script, with nothing but the standard library. A worker has one process of it, the launcher, which forks a
supervisor for each agent: to start an interpreter each time would take longer than all of the sandbox. As a child
subreaper a supervisor inherits all orphans of its agent's processes, in whatever session. When the worker dies, even by
SIGKILL, the control socket closes, and the supervisor kills everything.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE_S = 10.0
_PAUSE_MS = 5
_NICENESS = 5


def descendants(pid: int) -> Iterator[int]:
    """Yield the living processes below one, parents before their children."""
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        if parent != pid:
            yield parent
        # One that has ended has no children: they have moved up to the supervisor.
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children", encoding="ascii") as file:
                    waiting += map(int, file.read().split())


def _become_agent(request: Mapping[str, Any], fault: int) -> NoReturn:
    """Turn the forked child into the agent; the reason why it cannot start is written to `fault`."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.nice(_NICENESS)
        if request["group"]:
            with open(f"{request['group']}/cgroup.procs", "w", encoding="ascii") as file:
                file.write("0")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for kind, limit in ((resource.RLIMIT_FSIZE, "file_bytes"), (resource.RLIMIT_NOFILE, "open_files")):
            # The limits of the service's process cannot be raised.
            value, hard_limit = request[limit], resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (value if hard_limit == resource.RLIM_INFINITY else min(value, hard_limit),) * 2)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
        os.chdir(request["folder"])
        os.execvpe(request["argv"][0], request["argv"], request["environment"])
    except (OSError, ValueError) as error:
        os.write(fault, str(error).encode("utf-8", "replace"))
    os._exit(127)


def _reap(agent: int) -> tuple[int | None, bool]:
    """Reap ended children; return the agent's exit status if it is among them, and whether any child is left."""
    status = None
    try:
        while (pid := os.waitpid(-1, os.WNOHANG))[0]:
            if pid[0] == agent:
                status = os.waitstatus_to_exitcode(pid[1])
    except ChildProcessError:
        return status, False
    return status, True


def _supervise(control: int, stdin: int, stdout: int, request_fd: int) -> None:
    """Run an agent; report `exit N`, `ended` or `fault TEXT`."""
    os.setsid()
    os.set_inheritable(control, False)
    with open(request_fd, encoding="utf-8") as file:
        request = json.load(file)
    for number, stream in enumerate((stdin, stdout, stdout)):
        os.dup2(stream, number)
    os.close(stdin)
    os.close(stdout)
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    # Outside Linux an orphan leaves the tree; the worker then finds it with the help of its environment.
    if prctl is not None:
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wakeup, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    reading, writing = os.pipe()
    agent = os.fork()
    if agent == 0:
        os.close(reading)
        _become_agent(request, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as reason:
        fault = reason.read().decode("utf-8", "replace")
    # Only the agent keeps its output open.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    poll = select.poll()
    poll.register(control, select.POLLIN | select.POLLHUP)
    poll.register(wakeup, select.POLLIN)
    status = None
    # Until the agent exits, or the worker closes the control socket.
    while status is None and control not in dict(poll.poll()):
        os.read(wakeup, 512)
        status, _ = _reap(agent)
    # Orphans become a subreaper's children: without a child, no process is left.
    deadline, clean = time.monotonic() + _PATIENCE_S, False
    while not clean and time.monotonic() < deadline:
        for pid in list(descendants(os.getpid())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        clean = not _reap(agent)[1]
        if not clean:
            select.poll().poll(_PAUSE_MS)
    report = "ended" if status is None else f"exit {status}"
    if fault:
        report = f"fault {fault}"
    # The worker may be gone, which leaves nobody to read the report.
    with contextlib.suppress(OSError):
        os.write(control, (report if clean else f"left {report}").encode())


def main() -> None:
    """Run `supervisor.py SOCKET_FD`: fork a supervisor for each request, until the worker closes the socket or dies.

    A request is a byte with four descriptors: the control socket, the agent's input and output, and a JSON document.
    The answer is the process id, or the error's number below zero.
    """
    requests = socket.socket(fileno=int(sys.argv[1]))
    # The kernel reaps the supervisors.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # The worker may die before it reads an answer.
    with contextlib.suppress(ConnectionError):
        while descriptors := socket.recv_fds(requests, 1, 4)[1]:
            try:
                pid = os.fork()
            except OSError as error:
                pid = -(error.errno or 1)
            if pid == 0:
                try:
                    requests.close()
                    _supervise(*descriptors)
                finally:
                    os._exit(0)
            for descriptor in descriptors:
                os.close(descriptor)
            requests.send(str(pid).encode())


if __name__ == "__main__":
    main()
