"""Submodules: the service fetches them from the repository's own host, and agents see them as plain files."""

import contextlib
import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from service.execution.commits import LINK
from service.execution.mirror import RepositoryMirror
from service.git import GitCommandError, GitRunner
from service.reference import location

_POINTER: Final = "^version https://git-lfs.github.com/spec/v1$"
"""The first line of a file in Git LFS."""
_MAX_SUBMODULES: Final = 100
"""Submodules of one checkout, those of submodules included: they may form a loop."""


def links(git: GitRunner, commit: str | None) -> list[tuple[str, str]]:
    """Return the submodules of a commit: the path and the commit of each."""
    if commit is None or not git("ls-tree", commit, "--", ".gitmodules"):
        return []
    entries = (entry.partition("\t") for entry in git("ls-tree", "-r", "-z", commit).split("\0"))
    return [(path, entry.split()[2]) for entry, _, path in entries if entry.startswith(f"{LINK} commit ")]


@dataclass(slots=True)
class Submodules:
    """The submodules of one turn's checkout."""

    may_use: Callable[[str], bool]
    """Whether a path on the repository's host lies in the groups that the organization may use."""
    note: Callable[[str], None]
    filled: dict[str, GitRunner] = field(default_factory=dict)
    """Path in the checkout to git in its submodule."""

    def fill(self, parent: RepositoryMirror, commit: str, tree: Path, folder: Path, prefix: str = "") -> None:
        """Check out the submodules of a commit in a repository, and theirs; `folder` gets their git-dirs.

        Raises:
            GitCommandError: The code host is down.
        """
        arguments = (f"--blob={commit}:.gitmodules", "--get-regexp", r"^submodule\..*\.(path|url)$")
        try:
            output = parent.git("config", "-z", *arguments)
        except GitCommandError:
            output = ""
        values = dict(entry.split("\n", 1) for entry in output.split("\0") if "\n" in entry)
        paths = {name.removesuffix(".path"): path for name, path in values.items() if name.endswith(".path")}
        addresses = {path: values[f"{name}.url"] for name, path in paths.items() if f"{name}.url" in values}
        for path, sha in links(parent.git, commit):
            full_path = f"{prefix}{path}"
            if len(self.filled) == _MAX_SUBMODULES:
                self.note(f"the submodule {full_path} is not fetched: a checkout has at most {_MAX_SUBMODULES}")
                return
            try:
                address = self._address(parent.git.url, addresses.get(path))
                mirror = RepositoryMirror(parent.git_dir.parent, parent.git.at(address))
                mirror.fetch_commit(sha)
                place = folder / f"submodule-{len(self.filled)}.git"
                mirror.lend(place, refs={"refs/heads/main": sha})
                if (tree / path).resolve() != tree.resolve() / path:
                    raise GitCommandError("a link is in the way of its folder")  # noqa: TRY301 — the handler below notes it like every other error
                (tree / path).mkdir(parents=True, exist_ok=True)
                inside = mirror.git.inside(place, tree / path)
                inside("read-tree", "--reset", "-u", "HEAD")
            except GitCommandError as error:
                if error.is_passing:
                    raise
                self.note(f"the submodule {full_path} is not fetched: {error}")
                continue
            self.filled[full_path] = inside
            with contextlib.suppress(GitCommandError):
                mirror.git("grep", "--quiet", "-e", _POINTER, sha, "--")
                self.note(f"the submodule {full_path} has files in Git LFS: they stay pointers")
            self.fill(mirror, sha, tree / path, folder, f"{full_path}/")

    def changed_submodules(self, tree: Path) -> list[str]:
        """Return the submodules in which an agent changed files."""
        root = tree.resolve()
        status = ("status", "--porcelain", "--untracked-files=all", "--ignore-submodules=all")
        return [
            path
            for path, git in self.filled.items()
            if (tree / path).resolve().is_relative_to(root / path) and git(*status)
        ]

    def _address(self, url: str, address: str | None) -> str:
        """Return a submodule's address, in the form of the repository's, if agents may have it."""
        place_of_repository = location(url)
        if address is None or place_of_repository is None or not place_of_repository.host or "://" not in url:
            raise GitCommandError("its address is not in .gitmodules" if address is None else "it has no code host")
        if address.startswith(("./", "../")):
            path = posixpath.normpath(posixpath.join(place_of_repository.path, address)).removesuffix(".git")
        else:
            place = location(address)
            if place is None or place.host != place_of_repository.host:
                raise GitCommandError(f"only those on {place_of_repository.host} are")
            path = place.path
        # A server may decode and normalize the requested path.
        if "%" in path or {"", ".", ".."} & {*path.split("/")} or not self.may_use(path):
            raise GitCommandError(f"{path} is outside the organization's groups")
        scheme, _, rest = url.partition("://")
        return f"{scheme}://{rest.partition('/')[0]}/{path}.git"
