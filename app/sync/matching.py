"""Deciding here whether a run passes a filter: for what the API cannot filter, or a service that ignores it."""

from fnmatch import fnmatchcase

from storage.records import Run, RunFilter


def matches(run: Run, wanted: RunFilter) -> bool:
    """Whether the run passes every condition; the same answer as the cache's SQL gives."""
    return _status(run, wanted) and _places(run, wanted) and _dates(run, wanted) and _words(run, wanted)


def _status(run: Run, wanted: RunFilter) -> bool:
    if wanted.active and run.is_final:
        return False
    if wanted.statuses and run.status not in wanted.statuses:
        return False
    return run.status not in wanted.not_statuses


def _places(run: Run, wanted: RunFilter) -> bool:
    label, branch = run.repository.label, run.branch_name
    return (
        (not wanted.repositories or _any(label, wanted.repositories))
        and not _any(label, wanted.not_repositories)
        and (not wanted.branches or _any(branch, wanted.branches))
        and not _any(branch, wanted.not_branches)
    )


def _any(text: str, patterns: tuple[str, ...]) -> bool:
    # Only `*` is special: a branch may well hold `[` or `?`.
    return any(fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]")) for pattern in patterns)


def _dates(run: Run, wanted: RunFilter) -> bool:
    if wanted.since is None and wanted.until is None:
        return True
    if run.created_at is None:
        return False
    return (wanted.since is None or run.created_at >= wanted.since) and (
        wanted.until is None or run.created_at <= wanted.until
    )


def _words(run: Run, wanted: RunFilter) -> bool:
    places = [run.run_id.casefold(), run.repository.label.casefold(), run.branch_name.casefold()]
    return all(any(word in place for place in places) for word in wanted.search.casefold().split())
