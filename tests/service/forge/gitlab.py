"""A GitLab on loopback, as far as its documentation goes for merge requests, statuses, notes and discussions."""

from typing import Any

from tests.service.forge.lookalike import LookAlike, RefusedError, Request

STATES = {"pending", "running", "success", "failed", "canceled", "skipped"}
_PROJECT = 42


class GitLabForge(LookAlike):
    """One project, 42 at acme/web."""

    root = "/api/v4"

    def __init__(self) -> None:
        super().__init__()
        self.merge_requests: list[dict[str, Any]] = []
        self.statuses: list[dict[str, Any]] = []
        self.notes: list[dict[str, Any]] = []
        self.discussions: list[dict[str, Any]] = []

    def account_of(self, headers: dict[str, str]) -> str:
        token = headers.get("private-token") or headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.accounts:
            raise RefusedError(401, {"message": "401 Unauthorized"})
        return self.accounts[token]

    def page_links(self, request: Request, page: int, *, has_next: bool) -> dict[str, str]:
        return {"X-Next-Page": str(page + 1) if has_next else "", "X-Page": str(page)}

    def answer(self, request: Request, account: str) -> tuple[int, Any]:
        match request.segments:
            case ["user"]:
                return 200, {"username": account}
            case ["projects", "42" | "acme/web", *rest]:
                return self._project(rest, request, account)
        raise RefusedError(404, {"message": "404 Project Not Found"})

    def _project(self, rest: list[str], request: Request, account: str) -> tuple[int, Any]:
        match (request.method, *rest):
            case ("GET", "merge_requests"):
                return 200, self._listed(request.query)
            case ("POST", "merge_requests"):
                return 201, self._opened(request.document, account)
            case ("POST", "statuses", sha):
                return 201, self._status(sha, request.document)
            case ("GET", "repository", "commits", sha, "statuses"):
                return 200, [one for one in self.statuses if one["sha"] == sha]
            case (method, "merge_requests", number, *place):
                return self._of_merge_request(method, self._merge_request(number), place, request, account)
        raise RefusedError(404, {"error": "404 Not Found"})

    def _of_merge_request(
        self, method: str, found: dict[str, Any], place: list[str], request: Request, account: str
    ) -> tuple[int, Any]:
        given = request.document
        match (method, *place):
            case ("GET",):
                return 200, found
            case ("PUT",):
                found.update({key: given[key] for key in ("title", "description") if key in given})
                return 200, found
            case ("GET", "notes"):
                firsts = [note for one in self.discussions for note in one["notes"] if one["iid"] == found["iid"]]
                return 200, [one for one in self.notes if one["iid"] == found["iid"]] + firsts
            case ("POST", "notes"):
                self.notes.append(self._note(given, account) | {"iid": found["iid"], "type": None})
                return 201, self.notes[-1]
            case ("PUT", "notes", number):
                note = next(one for one in self.notes if str(one["id"]) == number)
                note["body"] = _required(given, "body")
                return 200, note
            case ("GET", "diffs"):
                return 200, [{"old_path": path, "new_path": path, "diff": self.patch_of(path)} for path in self.diff]
            case ("GET", "discussions"):
                return 200, [one for one in self.discussions if one["iid"] == found["iid"]]
            case ("POST", "discussions"):
                return 201, self._discussed(found, given, account)
            case ("PUT", "discussions", key, *note):
                return 200, self._changed(key, note, given, account)
        raise RefusedError(404, {"error": "404 Not Found"})

    def _listed(self, query: dict[str, str]) -> list[dict[str, Any]]:
        state, branch = query.get("state", "all"), query.get("source_branch")
        found = [one for one in self.merge_requests if state == "all" or one["state"] == state]
        found = [one for one in found if branch is None or one["source_branch"] == branch]
        return sorted(found, key=lambda one: int(one["iid"]), reverse=query.get("sort", "desc") == "desc")

    def _opened(self, given: dict[str, Any], account: str) -> dict[str, Any]:
        title, branch, base = (_required(given, name) for name in ("title", "source_branch", "target_branch"))
        if branch not in self.branches or base not in self.branches:
            raise RefusedError(409, {"message": ["Source branch or target branch does not exist"]})
        if branch == base:
            raise RefusedError(422, {"message": ["You can't use same project/branch for source and target"]})
        for one in self.merge_requests:
            if one["state"] == "opened" and one["source_branch"] == branch and one["source_project_id"] == _PROJECT:
                text = f"Another open merge request already exists for this source branch: !{one['iid']}"
                raise RefusedError(409, {"message": [text]})
        return self.add(branch, base, title, given.get("description"), account)

    def add(
        self, branch: str, base: str, title: str, body: Any, account: str, *, source: int = _PROJECT
    ) -> dict[str, Any]:
        """Add one, also as a person would do it, or from a fork."""
        number = self.number()
        head = self.branches.get(branch, "f" * 40)
        made = {
            "iid": number,
            "web_url": f"https://gitlab.example/acme/web/-/merge_requests/{number}",
            "state": "opened",
            "title": title,
            "description": body,
            "draft": title.startswith("Draft: "),
            "author": {"username": account},
            "source_branch": branch,
            "target_branch": base,
            "source_project_id": source,
            "target_project_id": _PROJECT,
            "sha": head,
            "diff_refs": {"base_sha": "a" * 40, "start_sha": "a" * 40, "head_sha": head},
        }
        self.merge_requests.append(made)
        return made

    def _merge_request(self, number: str) -> dict[str, Any]:
        for one in self.merge_requests:
            if str(one["iid"]) == number:
                head = self.branches.get(one["source_branch"], one["sha"])
                one["sha"] = one["diff_refs"]["head_sha"] = head
                return one
        raise RefusedError(404, {"message": "404 Not found"})

    def _status(self, sha: str, given: dict[str, Any]) -> dict[str, Any]:
        if sha not in self.branches.values():
            raise RefusedError(404, {"message": "404 Commit Not Found"})
        state = given.get("state")
        if state not in STATES:
            raise RefusedError(400, {"error": "state does not have a valid value"})
        if len(given.get("description") or "") > 255:
            raise RefusedError(400, {"message": {"description": ["is too long (maximum is 255 characters)"]}})
        name = given.get("name") or given.get("context") or "default"
        held = next((one for one in self.statuses if (one["sha"], one["name"]) == (sha, name)), None)
        if held is not None and held["status"] == state:
            text = f"Cannot transition status via :{state} from :{state} (Reason(s): Status cannot transition)"
            raise RefusedError(400, {"message": text})
        made = {
            "sha": sha,
            "name": name,
            "status": state,
            "ref": given.get("ref"),
            "target_url": given.get("target_url"),
        }
        if held is not None:
            self.statuses.remove(held)
        self.statuses.append(made)
        return made

    def shown(self, sha: str) -> dict[str, str]:
        """Return what is shown beside a commit, by name."""
        return {one["name"]: one["status"] for one in self.statuses if one["sha"] == sha}

    def _note(self, given: dict[str, Any], account: str) -> dict[str, Any]:
        return {
            "id": self.number(),
            "body": _required(given, "body"),
            "author": {"username": account},
            "system": False,
            "resolved": False,
            "resolved_by": None,
        }

    def _discussed(self, found: dict[str, Any], given: dict[str, Any], account: str) -> dict[str, Any]:
        note = self._note(given, account)
        position = given.get("position") or {}
        shas = {key: position.get(key) for key in ("base_sha", "start_sha", "head_sha")}
        is_known = position.get("new_line") in self.diff.get(position.get("new_path", ""), ())
        if shas != found["diff_refs"] or position.get("position_type") != "text" or not is_known:
            text = '400 Bad request - Note {:line_code=>["can\'t be blank", "must be a valid line code"]}'
            raise RefusedError(400, {"message": text})
        note |= {"type": "DiffNote", "position": position}
        made = {"id": f"{note['id']:040x}", "iid": found["iid"], "notes": [note]}
        self.discussions.append(made)
        return made

    def _changed(self, key: str, place: list[str], given: dict[str, Any], account: str) -> dict[str, Any]:
        found = next((one for one in self.discussions if one["id"] == key), None)
        if found is None:
            raise RefusedError(404, {"message": "404 Discussion Not Found"})
        if place:
            found["notes"][0]["body"] = _required(given, "body")
        elif not isinstance(given.get("resolved"), bool):
            raise RefusedError(400, {"error": "resolved is missing"})
        else:
            resolved_by = {"username": account} if given["resolved"] else None
            found["notes"][0] |= {"resolved": given["resolved"], "resolved_by": resolved_by}
        return dict(found)


def _required(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise RefusedError(400, {"error": f"{name} is missing"})
    return value
