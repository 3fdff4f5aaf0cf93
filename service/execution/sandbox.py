"""The sandbox: bubblewrap shows the agent a read-only system and its own workspace, nothing else."""

import contextlib
import platform
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import service
from service.egress import relay as relay_script
from service.errors import ServiceError
from service.execution import cgroup, uplink
from service.execution.processes import Launcher
from service.execution.workspace import Workspace
from service.settings import ExecutionSettings
from service.store.workers import MISSING

_CALLS: Final = {
    # System V memory outlives its processes, and kernel keys belong to the whole user.
    "x86_64": (0xC000003E, 157, (29, 248, 249, 250)),
    "aarch64": (0xC00000B7, 167, (194, 217, 218, 219)),
}
"""Machine to its audit architecture, and its numbers of prctl, and of shmget, add_key, request_key and keyctl."""
_SET_DUMPABLE: Final = 4
"""Forbidden to prctl: a process that cannot be dumped hides its files, memory files included, from the service."""
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in the data that a filter sees of a call."""
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW: Final = (_RETURN, 0, 0, 0x7FFF0000)
_REFUSE: Final = (_RETURN, 0, 0, 0x00050000 | 1)
"""EPERM."""
_OTHER_ABI: Final = 0x40000000
"""The number of a system call from which on x86_64 means another table of calls."""
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store")
_ETC: Final = (
    *("alternatives", "ca-certificates", "ssl", "pki", "ld.so.cache", "localtime", "passwd", "group"),
    *("nsswitch.conf", "host.conf", "services", "protocols", "mime.types", "magic"),
)
_RESOLVER: Final = Path("/etc/resolv.conf")
_HOSTS: Final = Path("/etc/hosts")
_LOOPBACK: Final = "127.0.0.1 localhost agent\n::1 localhost ip6-localhost ip6-loopback\n"
"""The names of an agent without a network; `agent` is its host's."""
_SOCKETS: Final = "/run/runwarden"
_PROBE_S: Final = 60
_INSTALLERS: Final = {"debian": "apt install", "ubuntu": "apt install", "fedora": "dnf install", "rhel": "dnf install"}
"""The command that installs packages, by the distribution or one that it is like."""
_PROFILE: Final = "/etc/apparmor.d/runwarden-bwrap"
_FORBIDDING: Final = {
    "kernel/apparmor_restrict_unprivileged_userns=1": "AppArmor forbids user namespaces here; run "
    f'"install -m 644 deploy/apparmor/runwarden-bwrap {_PROFILE} && apparmor_parser -r {_PROFILE}"',
    "kernel/unprivileged_userns_clone=0": 'user namespaces are off; run "sysctl -w kernel.unprivileged_userns_clone=1"',
    "user/max_user_namespaces=0": 'user namespaces are off; run "sysctl -w user.max_user_namespaces=15000"',
}
"""The kernel's settings that keep bubblewrap from working, and what to do about each."""
_STARTER: Final = ("/bin/sh", "-c", 'exec "$0" "$@"')
"""A shell starts the command: for one that cannot start it exits with 126 or 127, and bubblewrap only with 1."""
PACKAGE_ROOT: Final = Path(service.__file__).resolve().parent.parent


def filter_program() -> bytes | None:
    """Return the filter for this machine, as bubblewrap reads it; None where the calls' numbers are not known."""
    if (known := _CALLS.get(platform.machine())) is None:
        return None
    architecture, control, calls = known
    # Each test jumps over the next instruction if it is passed (1, 0), or if it is not (0, 1).
    program = [(_LOAD, 0, 0, _ARCHITECTURE), (_JUMP_EQUAL, 1, 0, architecture), _REFUSE]
    program += [(_LOAD, 0, 0, _NUMBER), (_JUMP_AT_LEAST, 0, 1, _OTHER_ABI), _REFUSE]
    for call in calls:
        program += [(_JUMP_EQUAL, 0, 1, call), _REFUSE]
    program += [(_JUMP_EQUAL, 1, 0, control), _ALLOW]
    program += [(_LOAD, 0, 0, _FIRST_ARGUMENT), (_JUMP_EQUAL, 0, 1, _SET_DUMPABLE), _REFUSE, _ALLOW]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


@dataclass(frozen=True, slots=True)
class Inside:
    """The sandbox's folders as the agent sees them, the same in every turn: many programs find their state by path."""

    tree: str = "/workspace"
    home: str = "/home/agent"
    cache: str = "/cache"
    temporary: str = "/tmp"  # noqa: S108 — the sandbox has a separate /tmp


INSIDE: Final = Inside()


class NoSandboxError(ServiceError):
    """A required sandbox, or a network for it, is not available here; the text says how to fix that."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The sandbox between an agent and the machine."""

    program: str | None
    """bubblewrap's path; None: agents run with the rights of the service, or not at all."""
    reason: str
    """The state of the sandbox in one sentence; if it is missing: why, and the command that installs it."""
    slirp: str | None = None
    """slirp4netns's path, for agents' own networks; None: an agent may get only the machine's."""
    network_fault: str | None = None
    """Why no agent may have a network; None: agents have one if they are configured so."""
    groups: Path | None = None
    """The control group that holds a limited one for each agent; None: limits are only enforced by measuring."""
    is_missing: bool = False
    """Whether it is required and does not work here: then no agent is started."""
    launcher: Launcher = field(default_factory=Launcher, repr=False, compare=False)

    @property
    def is_boxed(self) -> bool:
        return self.program is not None

    def __str__(self) -> str:
        if self.is_missing:
            return f"{MISSING}{self.reason}"
        walls = "" if self.groups is None else ", with control groups"
        return f"{'none' if self.program is None else 'bubblewrap'} ({self.reason}){walls}"

    def wrap(
        self,
        argv: list[str],
        workspace: Workspace,
        readable: Iterable[Path],
        writable: Mapping[Path, str],
        covers: Mapping[str, Path] = {},
        ports: Mapping[int, str] = {},
        *,
        network: bool = False,
    ) -> list[str]:
        """Return the command that runs `argv` inside, where it sees the system, its workspace and a few other files.

        `readable` paths are the same inside. `writable`: folders with their paths inside; the agent's home is one.
        `covers`: paths inside, with the empty file or folder that hides each. `ports`: ports of the agent's loopback,
        with the name of the proxies' socket that each leads to.

        Raises:
            NoSandboxError: The sandbox is missing; or the agent needs a network, and none is available for it.
        """
        if self.is_missing:
            raise NoSandboxError(self.reason)
        if self.program is None:
            return argv
        if network and self.network_fault is not None:
            raise NoSandboxError(self.network_fault)
        slirp = self.slirp if network else None
        resolver = _RESOLVER if network else None
        if slirp is not None:
            resolver = workspace.resolver_file
            resolver.write_text(uplink.RESOLVER, "ascii")
        hosts = _HOSTS
        if not network:
            # The machine's own names are of no use there, but every test suite expects localhost.
            hosts = workspace.hosts_file
            hosts.write_text(_LOOPBACK, "ascii")
        mounts = [*_system_mounts(resolver), "--ro-bind-try", str(hosts), str(_HOSTS)]
        # These come first, because later mounts may lie inside them.
        mounts += ["--bind", str(workspace.temporary), INSIDE.temporary, "--bind", str(workspace.shared), "/dev/shm"]  # noqa: S108 — the sandbox has a separate /dev/shm
        relay = [Path(sys.base_prefix), Path(relay_script.__file__)] if ports else []
        # The files that the command itself reads: named files, the interpreter, and this package.
        read = [path for path in map(Path, argv) if path.is_absolute() and path.is_file()]
        if argv[0] == sys.executable:
            read += [Path(sys.base_prefix), Path(sys.prefix), PACKAGE_ROOT / "service"]
            # Libraries may be elsewhere (pip install --user, PYTHONPATH), and ruff is a program next to them.
            for folder in (Path(one) for one in sys.path if one.endswith("-packages")):
                read += [folder, folder.parents[2] / "bin/ruff"]
        mounts += _read_only([*read, *readable, *relay])
        mounts += _read_only([workspace.task_file, workspace.instructions_file, workspace.conversation_file])
        own_folders = {path: str(path) for path in (workspace.history, workspace.result_file.parent)}
        for path, target in (own_folders | {workspace.tree: INSIDE.tree, **writable}).items():
            mounts += ["--bind", str(path), target]
        for target, path in covers.items():
            mounts += ["--ro-bind", str(path), target]
        if ports:
            mounts += ["--ro-bind", str(workspace.sockets), _SOCKETS]
        # bubblewrap's own root and /dev would otherwise be writable memory without a limit.
        mounts += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", INSIDE.tree]
        starter = _STARTER if slirp is None else ("/bin/sh", "-c", uplink.STARTER)
        if ports:
            sockets = [f"{port}={_SOCKETS}/{name}" for port, name in ports.items()]
            argv = [str(Path(sys.executable).resolve()), "-I", "-S", relay_script.__file__, *sockets, "--", *argv]
        command = [*_isolation(share_network=network and slirp is None), *mounts, "--", *starter, *argv]
        if (content := filter_program()) is None:
            return _with_network(slirp, [self.program, *command])
        # A shell opens the descriptor of the filter.
        workspace.filter_file.write_bytes(content)
        opening = ["/bin/sh", "-c", 'exec 9<"$0" && exec "$@"', str(workspace.filter_file)]
        return _with_network(slirp, [*opening, self.program, "--seccomp", "9", *command])


def _with_network(slirp: str | None, command: list[str]) -> list[str]:
    """Return a sandbox's command, connected by slirp4netns to a private network if needed."""
    if slirp is None:
        return command
    return [sys.executable, "-I", "-S", uplink.__file__, slirp, *command]


def find(settings: ExecutionSettings, kernel: Path = Path("/proc/sys")) -> Sandbox:
    """Probe this machine, and return the sandbox for its agents, with the network that it has for them."""
    if settings.sandbox == "none":
        return Sandbox(None, 'switched off by sandbox = "none"', groups=cgroup.find())
    program = shutil.which("bwrap")
    if program is None:
        return Sandbox(None, f"bubblewrap is not installed; {_installing('bubblewrap')}", is_missing=True)
    if (fault := _fault("bubblewrap", _probe(program, _STARTER))) is not None:
        return Sandbox(None, f"{fault}; {_fix(fault, kernel)}", is_missing=True)
    # Moves the processes of this one's control group, so it cannot be repeated with each look for a missing sandbox.
    groups = cgroup.find()
    if settings.agent_network == "host":
        return Sandbox(program, 'works here; agent_network = "host"', groups=groups)
    slirp = shutil.which("slirp4netns")
    command = [] if slirp is None else _with_network(slirp, _probe(program, ("/bin/sh", "-c", uplink.STARTER)))
    fault = "slirp4netns is not installed" if slirp is None else _fault("slirp4netns", command)
    if fault is None:
        return Sandbox(program, "works here", slirp, groups=groups)
    fix = 'set execution.agent_network = "host" and open this machine\'s loopback to agents'
    refusal = f"{fault}; {_installing('slirp4netns')}, or {fix}"
    return Sandbox(program, f"works here; no network for agents: {fault}", None, refusal, groups)


def _installing(package: str) -> str:
    try:
        about = platform.freedesktop_os_release()
    except OSError:
        about = {}
    kinds = [about.get("ID", ""), *about.get("ID_LIKE", "").split()]
    commands = [_INSTALLERS[kind] for kind in kinds if kind in _INSTALLERS]
    if commands:
        return f'run "{commands[0]} {package}"'
    return f"install the package {package}"


def _fix(fault: str, kernel: Path) -> str:
    """Return how to make an installed bubblewrap work."""
    if "nknown option" in fault:
        return f"version 0.8 or newer is needed: {_installing('bubblewrap')}"
    for setting, fix in _FORBIDDING.items():
        name, _, value = setting.partition("=")
        with contextlib.suppress(OSError):
            if (kernel / name).read_text("ascii").strip() == value:
                return fix
    return "allow user namespaces on this machine"


def _probe(program: str, starter: tuple[str, ...]) -> list[str]:
    return [program, *_isolation(share_network=False), *_system_mounts(None), "--", *starter, "/bin/sh", "-c", "true"]


def _fault(name: str, command: list[str]) -> str | None:
    """Run a probe and return why it failed, or None."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PROBE_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{name} cannot be started ({error})"
    if done.returncode:
        message = " ".join(done.stderr.decode("utf-8", "replace").split())
        return f"{name} does not work here ({message[:200]})"
    return None


def _isolation(*, share_network: bool) -> list[str]:
    shared = ["--share-net"] if share_network else []
    # No user namespace inside: in one, an agent could mount memory that no limit counts.
    alone = ["--unshare-all", "--unshare-user", "--disable-userns", *shared]
    return [*alone, "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "agent"]


def _system_mounts(resolver: Path | None) -> list[str]:
    """Return the mounts of the system; `resolver` is shown to an agent that has a network."""
    view: list[str] = []
    for folder in _SYSTEM:
        if Path(folder).is_symlink():
            view += ["--symlink", str(Path(folder).readlink()), folder]
        else:
            view += ["--ro-bind-try", folder, folder]
    for name in _ETC:
        view += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    if resolver is not None:
        view += ["--ro-bind-try", str(resolver), str(_RESOLVER)]
    return [*view, "--proc", "/proc", "--dev", "/dev", "--dir", "/run"]


def _read_only(paths: Iterable[Path]) -> list[str]:
    """Return the mounts that show paths unchanged; a path inside another one needs no further mount."""
    mounts: list[str] = []
    folders = tuple(f"{folder}/" for folder in _SYSTEM)
    for path in map(str, sorted(set(paths))):
        # A mount point could not be made inside a read-only mount.
        if not f"{path}/".startswith(folders):
            mounts += ["--ro-bind-try", path, path]
            folders = (*folders, f"{path}/")
    return mounts
