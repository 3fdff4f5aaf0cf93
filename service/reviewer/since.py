"""The last turn: its record found on the branch, and its findings held against those of now."""

from service.reviewer.checkout import Checkout
from service.reviewer.checks import CODE_RULES
from service.reviewer.earlier import Record, RecordError, Remembered, Since, compare, decode
from service.reviewer.limits import RECORD_BYTES
from service.reviewer.review import Review
from service.reviewer.scope import REVIEWS
from service.reviewer.task import Task


def path_of(task: Task) -> str:
    """Where the review of a run is kept, in the checkout."""
    return f"{REVIEWS}{task.run_id}.md"


def last_record(checkout: Checkout, task: Task) -> tuple[Record | None, str | None]:
    """The record of the last turn, or why there is none; a first turn has none to miss."""
    content = checkout.read(path_of(task), RECORD_BYTES)
    if content is None:
        return None, f"{path_of(task)} is not on this branch"
    try:
        return decode(content), None
    except RecordError as error:
        return None, str(error)


def since_last(record: Record, done: Review, paths: frozenset[str]) -> Since:
    """Compare a review with the record of the last one; what was tidied counts as resolved.

    Args:
        record: of the last turn.
        done: this turn's review.
        paths: all paths of the tree.
    """
    survey, scope, wishes = done.survey, done.scope, done.wishes
    both_diffs = record.kind == scope.kind == "diff"

    def seen(one: Remembered) -> bool:
        if not wishes.wants(one.rule) or not wishes.covers(one.path) or one.rule in survey.unjudged:
            return False
        if one.rule in CODE_RULES and one.path in survey.unparsed:
            return False
        if one.path not in paths:
            return True  # deleted, or a folder, whose findings were looked for again
        # A path the branch no longer changes is no longer the branch's to answer for.
        return one.path in done.judged or (both_diffs and one.path not in scope.changes)

    present = frozenset(one.fingerprint for one in survey.found if not done.tidied.cures(one))
    return compare(record, done.reported, present, seen)
