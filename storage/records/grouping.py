"""Groups of runs: the grouping, the folded groups, and a group's counts."""

from dataclasses import dataclass, replace
from typing import Final, Literal, Self, get_args

GroupBy = Literal["repository", "branch"]
GROUPINGS: Final[tuple[GroupBy, ...]] = get_args(GroupBy)
UNFOLDED: Final = "unfolded"


@dataclass(frozen=True, slots=True)
class Grouping:
    """The grouping, and the groups folded to one line."""

    by: GroupBy
    is_folded: bool = True
    others: frozenset[str] = frozenset()
    """The groups that differ from the rest in being folded or not."""

    def folds(self, name: str) -> bool:
        """Whether the group of this name is folded; one whose name is a pattern always is."""
        return "*" in name or self.is_folded != (name in self.others)

    def toggled(self, name: str) -> Self:
        """The grouping with this group folded, or unfolded if it was folded."""
        return replace(self, others=self.others ^ {name})

    @property
    def reversed(self) -> Self:
        """The grouping with all groups folded, or unfolded if they were folded."""
        return replace(self, is_folded=not self.is_folded, others=frozenset())

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Parse the result of `str`; None: no grouping."""
        name, _, how = text.partition(" ")
        by = next((known for known in GROUPINGS if known == name), None)
        return None if by is None else cls(by, how != UNFOLDED)

    def __str__(self) -> str:
        return self.by if self.is_folded else f"{self.by} {UNFOLDED}"


@dataclass(frozen=True, slots=True)
class RunGroup:
    """The runs of one repository or branch, in numbers."""

    name: str
    runs: int
    failed: int = 0
    stuck: int = 0
    active: int = 0
    others: int = 0
    """How many further groups it stands for; 0: it is one group."""
    is_folded: bool = True

    @property
    def rows(self) -> int:
        """The rows that follow its head."""
        return 0 if self.is_folded else self.runs
