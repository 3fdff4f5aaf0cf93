"""The fields of one form: their values, their problems, and the field to focus."""

from collections.abc import Callable, Sequence

from textual.widget import Widget

from app.actions import FieldProblem
from app.console.forms.drafts import Values
from app.console.forms.values import offer_branches, offer_repositories
from app.text import safe_text
from storage.cache import Cache
from widgets.forms.field import ChoiceField, FormField, ParagraphField


class FormFields:
    """The fields by their keys, in order."""

    def __init__(self, rows: Sequence[Widget], problems: Callable[[], tuple[FieldProblem, ...]]) -> None:
        """Take the fields among the rows; `problems` returns what is wrong with their values."""
        self._fields = {row.key: row for row in rows if isinstance(row, FormField)}
        self._problems = problems
        self.instructions = next((row for row in rows if isinstance(row, ParagraphField)), None)
        """None: the form takes no instructions."""
        self.last_typed = ""

    def __getitem__(self, key: str) -> FormField:
        """One field."""
        return self._fields[key]

    @property
    def values(self) -> Values:
        """By field, as typed."""
        return {key: field.value for key, field in self._fields.items()}

    def fill(self, values: Values) -> None:
        """Replace all values; fields without one are emptied."""
        for key, field in self._fields.items():
            field.fill(values.get(key, ""))
        self.last_typed = ""

    def insist(self) -> tuple[FieldProblem, ...]:
        """Show all problems, also of untouched fields, and focus the first field that has one."""
        for field in self._fields.values():
            field.insist()
        if found := self.complain():
            self._fields.get(found[0].field, next(iter(self._fields.values()))).take_focus()
        return found

    def complain(self) -> tuple[FieldProblem, ...]:
        """Show the problems of touched fields below them; return all problems."""
        found = self._problems()
        by_field = {problem.field: problem.message for problem in reversed(found)}
        for key, field in self._fields.items():
            message = by_field.get(key) if field.touched else None
            field.complain(safe_text(message) if message else None)
        return found

    def in_need(self) -> FormField:
        """The field that was typed in last; at first the one most in need of a value, or else the instructions."""
        if self.last_typed in self._fields:
            return self._fields[self.last_typed]
        wrong = {problem.field for problem in self._problems()}
        fields = tuple(self._fields.values())
        return next((field for field in fields if field.key in wrong), self.instructions or fields[0])

    async def offer_repositories(self, cache: Cache) -> None:
        """Suggest the repositories that have runs, if the form asks for one."""
        if isinstance(field := self._fields.get("repository"), ChoiceField):
            await offer_repositories(cache, field)

    async def offer_branches(self, cache: Cache) -> None:
        """Suggest the branches seen in the named repository, if the form asks for one."""
        if isinstance(field := self._fields.get("branch_name"), ChoiceField):
            await offer_branches(cache, field, self.values.get("repository", "").strip())
