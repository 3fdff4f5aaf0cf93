"""Tidying: the mechanical fixes, applied to files that on disk are exactly what was reviewed."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from service.reviewer.checkout import Checkout
from service.reviewer.checks.layout import CHECKS
from service.reviewer.finding import Identified
from service.reviewer.fixes import FIXABLE, fixed
from service.reviewer.limits import FILE_BYTES
from service.reviewer.source import Source

_LAYOUT = CHECKS[0]


@dataclass(frozen=True, slots=True)
class Tidied:
    """What was fixed, and what was not."""

    paths: tuple[str, ...] = ()
    left: int = 0
    """Files with a fixable fault that stays."""
    cured: frozenset[tuple[str, str]] = frozenset()
    """Rule id and path of each fault that is gone."""

    def cures(self, one: Identified) -> bool:
        """Whether a finding no longer holds."""
        return (one.finding.rule.id, one.finding.path) in self.cured


def tidy(sources: Mapping[str, Source], reported: tuple[Identified, ...], checkout: Checkout) -> Tidied:
    """Fix the reported mechanical faults that can be fixed without a doubt.

    Raises:
        CheckoutError: a file cannot be written.
    """
    faults: dict[str, set[str]] = defaultdict(set)
    for one in reported:
        if one.finding.rule.id in FIXABLE:
            faults[one.finding.path].add(one.finding.rule.id)
    paths: list[str] = []
    cured: set[tuple[str, str]] = set()
    for path, rules in faults.items():
        content = _content(sources[path], frozenset(rules), checkout)
        if content is not None:
            checkout.write(path, content)
            paths.append(path)
            left = {finding.rule.id for finding in _LAYOUT.look(replace(sources[path], data=content))}
            cured |= {(rule, path) for rule in rules - left}
    unfixed = {path for path, rules in faults.items() if any((rule, path) not in cured for rule in rules)}
    return Tidied(tuple(paths), len(unfixed), frozenset(cured))


def _content(source: Source, rules: frozenset[str], checkout: Checkout) -> bytes | None:
    """The new content; None when there is none, or when a filter makes the file on disk another one."""
    return fixed(source, rules) if checkout.read(source.path, FILE_BYTES) == source.data else None
