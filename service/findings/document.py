"""`findings.json`, version 1, with each finding checked by itself (docs/findings.schema.json)."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from service.errors import ServiceError, first_fault
from service.text import one_line, plural, printable

MOST: Final = 200
"""How many findings of a turn are kept."""
Severity = Literal["blocker", "major", "minor", "note"]
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
"""Severities, heaviest first."""
_REMARKS: Final = 10
_SHOWN: Final = 200


class FindingsError(ServiceError):
    """A file of findings cannot be used at all; the text says why."""


def _in_one_line(most: int) -> Callable[[str], str]:
    return lambda text: _cut(one_line(" ".join(text.split())), most)


def _in_lines(most: int) -> Callable[[str], str]:
    return lambda text: _cut(printable(text.replace("\r\n", "\n").replace("\r", "\n")).strip("\n"), most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _inside(path: str) -> str:
    """Return a path within the repository as git names it."""
    path = path.removeprefix("./")
    parts = path.split("/")
    if not path.isprintable() or "\\" in path or any(part.lower() in {"", ".", "..", ".git"} for part in parts):
        raise ValueError("it must lead to a file within the repository, with / between its parts")
    return path


_Rule = Annotated[
    str,
    AfterValidator(_in_one_line(100)),
    Field(description="What was looked for, called the same from turn to turn: the finding's id is made of it."),
]
_Path = Annotated[
    str,
    Field(max_length=1_000, description="The file, from the root of the repository, with / between its parts."),
    AfterValidator(_inside),
]
_Line = Annotated[int, Field(ge=1, le=10_000_000)]
_Title = Annotated[str, AfterValidator(_in_one_line(300)), Field(description="The fault in one line.")]
_Message = Annotated[str, AfterValidator(_in_lines(4_000)), Field(description="Why, and how to fix it; plain text.")]
_Suggestion = Annotated[
    str,
    AfterValidator(_in_lines(4_000)),
    Field(description="The lines that would replace these in the file."),
]


class Finding(BaseModel):
    """A remark on a place in the code. Texts that are too long are cut."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    rule: _Rule = ""
    severity: Severity = "minor"
    path: _Path
    line: _Line | None = Field(default=None, description="From 1; none: the whole file.")
    end_line: _Line | None = Field(default=None, description="The last line of the place; none: `line`.")
    title: _Title
    message: _Message = ""
    suggestion: _Suggestion = ""

    @model_validator(mode="after")
    def _is_a_place(self) -> Self:
        if not self.title.strip():
            raise ValueError("title must not be empty")
        if self.end_line is not None and (self.line is None or self.end_line < self.line):
            raise ValueError("end_line must not be before line")
        return self


class FindingsFile(BaseModel):
    """The whole file."""

    version: Literal[1]
    findings: list[Finding] = Field(max_length=MOST)


class IdentifiedFinding(Finding):
    """A finding that is the same in the next turn, even if its lines have moved."""

    id: str = Field(description="16 hexadecimal digits, made of rule, path and the words of the lines.")


def packed(base: str | None, found: Iterable[IdentifiedFinding]) -> bytes:
    """Encode a turn's findings for the database; `base`: the commit that was read, None in an empty repository."""
    return json.dumps({"base": base, "findings": [one.model_dump() for one in found]}).encode()


def read_json(data: bytes) -> Any:
    """Return a JSON document.

    Raises:
        FindingsError: it is none.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FindingsError(f"it is not JSON in UTF-8: {one_line(str(error))[:_SHOWN]}") from error


def drafts(document: Any) -> list[Any]:
    """Return the findings of a document, as they were written.

    Raises:
        FindingsError: it is of another kind, or of a version that is not known here.
    """
    if not isinstance(document, dict) or not isinstance(document.get("findings"), list):
        raise FindingsError('it must be an object such as {"version": 1, "findings": []}')
    version = document.get("version")
    if type(version) is not int or version != 1:
        raise FindingsError('"version" must be 1, the one version that this service knows')
    found: list[Any] = document["findings"]
    return found


def checked(written: Iterable[Any], remarks: list[str]) -> Iterator[Finding]:
    """Yield the usable findings; add the problems of the first few others to the remarks."""
    refused = 0
    for number, draft in enumerate(written, 1):
        try:
            yield Finding.model_validate(draft)
        except ValidationError as error:
            refused += 1
            if refused <= _REMARKS:
                remarks.append(f"finding {number} is left out: {one_line(first_fault(error))[:_SHOWN]}")
    if refused > _REMARKS:
        remarks.append(f"{plural(refused - _REMARKS, 'further finding')} left out")
