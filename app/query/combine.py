"""Two filters at once."""

from dataclasses import replace

from storage.records import RunFilter


def both(one: RunFilter, other: RunFilter) -> RunFilter:
    """What two filters ask for as if they stood in one line: lists join, limits tighten, words add up."""
    return replace(
        one,
        statuses=_joined(one.statuses, other.statuses),
        not_statuses=_joined(one.not_statuses, other.not_statuses),
        repositories=_joined(one.repositories, other.repositories),
        not_repositories=_joined(one.not_repositories, other.not_repositories),
        branches=_joined(one.branches, other.branches),
        not_branches=_joined(one.not_branches, other.not_branches),
        since=max((limit for limit in (one.since, other.since) if limit), default=None),
        until=min((limit for limit in (one.until, other.until) if limit), default=None),
        search=" ".join(part for part in (one.search, other.search) if part),
        active=one.active or other.active,
        stuck=one.stuck or other.stuck,
    )


def _joined(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))
