"""References: repositories and branches as callers name them, parsed once into canonical values (spec 2.3, 4.3).

A `ValueError` names the part that is wrong.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from service.ids import slug
from service.network import Host, HostError


@dataclass(frozen=True, slots=True)
class Platform:
    """What one kind of code host has in its own way."""

    title: str
    host: str | None
    """Its public host; None: each has to be named."""
    api: str
    """The API of that host, or an example of another's."""
    probes: tuple[str, ...] = ("/version",)
    """The API's paths that are asked for its health: each further one if the host has no page at the one before."""
    ref: str = "refs/pull/{}/head"
    """The ref under which a repository keeps the head of a pull request."""
    mark: str = "#"
    """The mark before the number of a pull request."""
    branch: str = "tree"
    """The path before a branch in its address."""
    event: str = "x-github-event"
    """The header of a delivery that names its event. Forgejo sends GitHub's headers, next to its own."""
    delivery: str = "x-github-delivery"
    """The header with its id."""
    proof: str = "x-hub-signature-256"
    """The header with the proof that the code host sent it."""
    has_groups: bool = False
    """Whether groups contain groups."""
    names_host: bool = True
    """Whether the health document shows its host and groups (spec 2.7)."""


PLATFORMS: Final[Mapping[str, Platform]] = {
    # An Enterprise Server without rate limits has no page for them, but it has one with its versions.
    "github": Platform(
        "GitHub", "github.com", "https://api.github.com", ("/rate_limit", "/versions"), names_host=False
    ),
    "gitlab": Platform(
        "GitLab",
        "gitlab.com",
        "https://gitlab.com/api/v4",
        ref="refs/merge-requests/{}/head",
        mark="!",
        event="x-gitlab-event",
        delivery="idempotency-key",
        proof="x-gitlab-token",
        has_groups=True,
    ),
    "forgejo": Platform("Forgejo", None, "https://git.example/api/v1", branch="src/branch"),
}
ALIASES: Final = {"gitea": "forgejo"}
"""Other names that an operator may use."""
MADE_BRANCHES: Final = "agent/"
"""The prefix of branches generated for runs."""
SEGMENT: Final = "[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"
"""The pattern of one part of a repository's path."""
NO_NUL: Final = r"^[^\x00]*$"
"""The pattern of text that can be stored."""
_HOST: Final = r"([A-Za-z0-9._-]+@)?[A-Za-z0-9][A-Za-z0-9.-]*"
_REST: Final = "[A-Za-z0-9_][A-Za-z0-9._/-]*"
NAMED: Final = rf"^({SEGMENT}(/{SEGMENT}){{1,19}}|(https?|ssh|git)://{_HOST}(:[0-9]{{1,5}})?/{_REST}|{_HOST}:{_REST})$"
"""The published pattern for a repository's path or full URL."""
_SEGMENT: Final = re.compile(SEGMENT, re.ASCII)
_SCP_FORM: Final = re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+):(?P<path>[^/].*)", re.ASCII)
_UNREADABLE: Final = re.compile(r"[\x00-\x20\x7f\\]")
_DEEPEST_GROUP: Final = 19
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")
MAX_BRANCH: Final = 200
"""The most bytes in a branch name."""
BRANCH: Final = (
    r"^(?![-/]|refs/|(@|HEAD)$|\.)(?![\s\S]*(\.\.|@\{|//|/\.|\.lock/))(?![\s\S]*([/.]|\.lock)$)"
    r"[^\x00-\x20\x7f~^:?*\[\\]+$"
)
"""The published pattern for branch names; `branch_fault` explains the same rules."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A repository on a code host: platform and path, `owner/repo` or `group/sub/project`."""

    platform: str
    path: str

    @property
    def body(self) -> dict[str, object]:
        """The reference in a request or response body (spec 2.3), with the platform's fields."""
        owner, _, repo = self.path.partition("/")
        has_groups = PLATFORMS[self.platform].has_groups
        data = {"project_path": self.path} if has_groups else {"owner": owner, "repo": repo}
        return {"platform": self.platform, "data": data}


@dataclass(frozen=True, slots=True)
class Location:
    """The parts of a full repository URL: the code host's name and the path on it."""

    host: str
    path: str


def reference(platform: str, data: Mapping[str, object]) -> Reference:
    """Parse platform and data into a reference (spec 2.3)."""
    if platform not in PLATFORMS:
        raise ValueError(f"repository.platform must be one of {', '.join(PLATFORMS)}")
    if not PLATFORMS[platform].has_groups:
        path = f"{_text(data, 'owner')}/{_text(data, 'repo')}"
    elif "project_path" in data:
        path = _text(data, "project_path")
    else:
        path = f"{_text(data, 'group')}/{_text(data, 'project')}"
    return Reference(platform, checked_path(platform, path))


def checked_path(platform: str, path: str) -> str:
    """Return the path of a repository on its platform, without a trailing `.git`."""
    parts = path.removesuffix(".git").split("/")
    most_groups = _DEEPEST_GROUP if PLATFORMS[platform].has_groups else 1
    if not 1 < len(parts) <= most_groups + 1 or not all(_SEGMENT.fullmatch(part) for part in parts):
        form = "owner/repo" if most_groups == 1 else "group/project"
        raise ValueError(f"the repository must read {form}, in letters, digits, '.', '_' and '-'")
    return "/".join(parts)


def location(url: str) -> Location | None:
    """Parse a full repository URL (https, ssh, git or the scp form); None if the text is not a URL."""
    # Python drops tabs and line breaks, and git treats a backslash differently: both must see the same host.
    if _UNREADABLE.search(url):
        return None
    if "://" in url:
        try:
            parts = urlsplit(url)
            # A file URL has no host.
            host = parts.hostname if parts.scheme == "file" else Host.parse(parts.hostname or "").text
        except ValueError:
            return None
        path = parts.path
    elif match := _SCP_FORM.fullmatch(url):
        try:
            host, path = Host.parse(match["host"]).text, match["path"]
        except HostError:
            return None
    else:
        return None
    path = path.strip("/").removesuffix(".git")
    return Location(host or "", path) if path else None


def without_login(url: str) -> str:
    """Return an http(s) URL, or a setting `key=URL`, without user and password, and any other text unchanged."""
    scheme, mark, rest = url.partition("://")
    if scheme.lower().rpartition("=")[2] not in {"http", "https"}:
        return url
    host, slash, path = rest.partition("/")
    return scheme + mark + host.rpartition("@")[2] + slash + path


def _text(data: Mapping[str, object], field: str) -> str:
    value = data.get(field)
    if not isinstance(value, str) or not value:
        raise ValueError(f"repository.data.{field} must be a non-empty string")
    return value


def branch_fault(name: str) -> str | None:
    """Return why git refuses a branch name (the rules of git check-ref-format); None if it is valid."""
    if not name or len(name.encode()) > MAX_BRANCH:
        return f"a branch name has 1 to {MAX_BRANCH} bytes"
    if name.startswith(("-", "/", "refs/")) or name.endswith(("/", ".")) or name in {"@", "HEAD"}:
        return "a branch name may not start with '-', '/' or 'refs/', end with '/' or '.', or be '@' or 'HEAD'"
    if _FORBIDDEN.search(name):
        return "a branch name may not hold spaces, control characters, '..', '//', '@{' or any of ~ ^ : ? * [ \\"
    if any(part.startswith(".") or part.endswith(".lock") for part in name.split("/")):
        return "no part of a branch name may start with '.' or end with '.lock'"
    return None


def default_branch(instructions: str, run_id: str) -> str:
    """Return the branch for a run that names none: `agent/<first words>-<last characters of the id>` (spec 4.3)."""
    return f"{MADE_BRANCHES}{slug(instructions) or 'run'}{_suffix(run_id)}"


def is_made_for(branch: str, run_id: str) -> bool:
    """Whether a branch was generated for a run; callers cannot imitate that, since they do not know the id before."""
    return branch.startswith(MADE_BRANCHES) and branch.endswith(_suffix(run_id))


def _suffix(run_id: str) -> str:
    return f"-{run_id[-8:].lower()}"
