"""Commits that GitHub's API makes for an App: GitHub signs them, so that rules that require signatures accept them.

A commit is made again with the same tree, message and parents; GitHub signs it if no author and committer are given.
"""

import base64
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from service.git import GitCommandError, GitRunner
from service.hosts import GITHUB_VERSION, HostResponse, HostUnreachableError, ask
from service.hosts.tokens import HostTokens
from service.store.hosts import Host
from service.text import table

_TIMEOUT_S: Final = 60.0
_MAX_ANSWER: Final = 16 << 20
_INLINE: Final = 64 << 10
_MAX_INLINE: Final = 2 << 20
_PASSING: Final = frozenset({408, 429, *range(500, 600)})
_LIMITED: Final = re.compile("rate limit", re.IGNORECASE)
_DELETED: Final = "0" * 40
_FIXES: Final = {
    401: "check the App's id and key_file",
    403: "give the App write access to Contents (and Workflows, if the change has any)",
    404: "install the App on the repository, with write access to Contents",
    409: "the repository is empty: push its first commit yourself",
}


class ApiCommits:
    """The Git database of one repository at GitHub; a `GitCommandError` says why it makes no commit."""

    def __init__(self, tokens: HostTokens, host: Host, path: str) -> None:
        self._tokens = tokens
        self._host = host
        self._base = f"{(host.api_url or '').rstrip('/')}/repos/{quote(path)}/git"

    def make(self, git: GitRunner, sha: str, known: Iterable[str]) -> str:
        """Make a commit there, with those below it that the repository lacks; return its new id."""
        order = ("--topo-order", "--reverse", "--parents")
        missing = git("rev-list", *order, sha, *(f"^{other}" for other in known), "--")
        made: dict[str, str] = {}
        for own, *parents in (line.split() for line in missing.splitlines()):
            tree = self._tree(git, own, next(iter(parents), None))
            message = git("log", "--max-count=1", "--format=%B", own, "--")
            fields = {"message": message, "tree": tree, "parents": [made.get(parent, parent) for parent in parents]}
            answer = self._ask("POST", "/commits", fields)
            verification = answer.get("verification") or {}
            if verification.get("verified") is not True:
                reason = f"GitHub did not sign the commit ({verification.get('reason', 'no reason given')})"
                raise GitCommandError(f"{reason}: remove sign from the App of {self._host.host}, or use a signing key")
            made[own] = str(answer["sha"])
        return made.get(sha, sha)

    def publish(self, branch: str, sha: str, head: str | None) -> None:
        """Let a branch, which is at `head` (None: does not exist), advance to a commit made here, above `head`."""
        if head is None:
            self._ask("POST", "/refs", {"ref": f"refs/heads/{branch}", "sha": sha})
        else:
            self._ask("PATCH", f"/refs/heads/{quote(branch)}", {"sha": sha, "force": False})

    def _tree(self, git: GitRunner, sha: str, base: str | None) -> str:
        tree = git("rev-parse", f"{sha}^{{tree}}")
        below = None if base is None else git("rev-parse", f"{base}^{{tree}}")
        if tree == below:
            return tree
        compared = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--ignore-submodules=none", "--root")
        raw = git(*compared, "--no-commit-id", *([base, sha] if base else [sha])).split("\0")
        left, entries = _MAX_INLINE, []
        for entry, path in zip(raw[:-1:2], raw[1::2], strict=True):
            _, mode, _, blob, _ = entry.split()
            if not path.isprintable() and any("\udc80" <= character <= "\udcff" for character in path):
                raise GitCommandError(f"GitHub's API takes no file names that are not UTF-8: {path!r}")
            fields: dict[str, Any] = {"path": path, "mode": mode, "type": "commit" if mode == "160000" else "blob"}
            if blob == _DELETED:
                fields |= {"mode": entry.split()[0].removeprefix(":"), "sha": None}
            elif mode == "160000":
                fields["sha"] = blob
            else:
                text = git.feed(None, "cat-file", "blob", blob)
                data = text.encode("utf-8", "surrogateescape")
                if text.isascii() and "\0" not in text and len(data) <= min(_INLINE, left):
                    left -= len(data)
                    fields["content"] = text
                else:
                    content = {"content": base64.b64encode(data).decode(), "encoding": "base64"}
                    fields["sha"] = self._ask("POST", "/blobs", content)["sha"]
            entries.append(fields)
        made = self._ask("POST", "/trees", {"tree": entries} | ({"base_tree": below} if below else {}))["sha"]
        if made != tree:
            raise GitCommandError(f"GitHub made the tree {made} of the commit's files, and not {tree}")
        return tree

    def _ask(self, method: str, path: str, document: object) -> dict[str, Any]:
        def answer_with(token: str | None) -> HostResponse:
            headers = {"Authorization": f"Bearer {token}"} | GITHUB_VERSION
            url = self._base + path
            return ask(url, _TIMEOUT_S, method=method, headers=headers, document=document, largest=_MAX_ANSWER)

        try:
            token = self._tokens.of(self._host)
            answer = answer_with(token)
            if answer.status == HTTPStatus.UNAUTHORIZED:
                answer = answer_with(self._tokens.of(self._host, token))
        except HostUnreachableError as error:
            text = f"the commit cannot be made through GitHub's API: {error}"
            raise GitCommandError(text, is_passing=True) from error
        body = table(answer.body)
        if answer.is_success and isinstance(body.get("sha") or body.get("ref"), str):
            return body
        message = str(body.get("message", "")).strip()
        fix = f"; {_FIXES[answer.status]}" if answer.status in _FIXES else ""
        text = f"GitHub answered {answer.status} to {method} {path.partition('/heads')[0]}: {message}{fix}"
        raise GitCommandError(text, is_passing=answer.status in _PASSING or bool(_LIMITED.search(message)))
