"""The uplink: gives a sandbox a private network; slirp4netns connects it to the outside, not to the machine's loopback.

It runs as a script, with nothing but the standard library, so that it starts in a few milliseconds. Its first argument
is slirp4netns, the rest the sandbox's command, which waits in `STARTER` until the network is there.
"""

import fcntl
import os
import subprocess
import sys

STARTER = 'echo >&7; read _ <&8 || exit 125; exec 7>&- 8<&-; exec "$0" "$@"'
"""The shell's program: it reports that the namespaces are ready, waits for the network, and becomes the command.

Its descriptors have one digit, since some shells know no others.
"""
RESOLVER = "nameserver 10.0.2.3\n"
"""slirp4netns's own resolver, which forwards queries to the machine's."""
_READY, _GO = 7, 8
_OWNER_OF_NAMESPACE = 0xB701
_ABOVE_ALL_DIGITS = 10


def _pipe() -> tuple[int, int]:
    reading, writing = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _ABOVE_ALL_DIGITS) for end in (reading, writing)]
    os.close(reading)
    os.close(writing)
    return moved[0], moved[1]


def _connect(program: str, pid: int) -> "subprocess.Popen[bytes] | None":
    """Start slirp4netns on the network of a process; None: it failed, and its message is on standard error."""
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    owner = fcntl.ioctl(network, _OWNER_OF_NAMESPACE)
    reading, writing = _pipe()
    messages = os.memfd_create("messages")
    command = [program, "--configure", "--mtu=65520", "--disable-host-loopback", "--enable-seccomp"]
    # For its own sandbox it becomes root of the network's user namespace, which has one if the service is root's.
    command += ["--enable-sandbox"] if os.geteuid() == 0 else []
    namespaces = ["--netns-type=path", f"--userns-path=/proc/self/fd/{owner}", f"/proc/self/fd/{network}", "tap0"]
    slirp = subprocess.Popen(
        [*command, f"--ready-fd={writing}", *namespaces],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=messages,
        pass_fds=[network, owner, writing],
    )
    os.close(writing)
    if os.read(reading, 1):
        return slirp
    slirp.wait()
    os.write(2, b"slirp4netns cannot connect the sandbox: " + os.pread(messages, 2000, 0))
    return None


def main() -> int:
    program, argv = sys.argv[1], sys.argv[2:]
    ready, to_say = _pipe()
    to_hear, go = _pipe()
    handed = [(os.POSIX_SPAWN_DUP2, to_say, _READY), (os.POSIX_SPAWN_DUP2, to_hear, _GO)]
    sandbox = os.posix_spawnp(argv[0], argv, os.environ, file_actions=handed)
    os.close(to_say)
    os.close(to_hear)
    slirp = None
    if os.read(ready, 1):
        # The last of a chain of processes: bubblewrap, its first process, the shell in the sandbox.
        innermost, children = sandbox, [str(sandbox)]
        while children:
            innermost = int(children[-1])
            with open(f"/proc/{innermost}/task/{innermost}/children", encoding="ascii") as file:
                children = file.read().split()
        slirp = _connect(program, innermost)
    if slirp is not None:
        os.write(go, b"\n")
    os.close(go)
    _, status = os.waitpid(sandbox, 0)
    if slirp is not None:
        slirp.kill()
        slirp.wait()
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
