"""A log's steps as lines of text, for the console and the command line."""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from app.engine.text import plural, safe_log_line, safe_text
from app.engine.times import span
from storage.records.results import LogStep

LABEL: Final = 9
"""Cells before a line's text."""
_SHORT: Final = 12
_LONG: Final = 200
"""Lines shown of a step: of a tool's input or output, and of words."""
_WORDS: Final = frozenset({"said", "printed", "error", "ended", "log"})
NO_LIMIT: Final = 1 << 26
"""Characters of a line that is not to be cut."""
_TONES: Final = {"said": "1", "ran": "36", "edited": "36", "used": "36", "error": "33"}
"""SGR codes of the kinds that are not quiet."""
_QUIET: Final = "2"
_BAD: Final = "31"
_SIGNS: Final = {"+": "32", "-": _BAD}
_SECONDS: Final = 60


class StepLines(Struct, eq=False):
    """Makes lines of steps in their order; the results of calls have the seconds since the call."""

    more: str
    """How to see lines that are left out."""
    colour: bool
    whole: bool = False
    """Whether none is left out."""
    _calls: dict[str, LogStep] = {}

    def of(self, step: LogStep) -> Iterator[str]:
        """The lines of the next step as a terminal shows them; none for the result of an edit that succeeded."""
        call = None if step.call is None else self._calls.get(step.call)
        if step.call is not None and step.kind != "result":
            self._calls[step.call] = step
        if step.kind == "result" and not (step.failed or self.whole) and call is not None and call.kind == "edited":
            return
        failure = "ERROR" if step.kind == "error" else "FAILED"
        kind = safe_text(failure if step.failed else step.kind, limit=LABEL)
        kind_code = _BAD if step.failed else _TONES.get(step.kind, _QUIET)
        seconds = step.seconds
        began = None if call is None else call.at
        if seconds is None and step.kind == "result" and step.at is not None and began is not None:
            seconds = max(0.0, (step.at - began).total_seconds())
        took = ""
        if seconds is not None:
            took = span(seconds) if seconds >= _SECONDS else f"{seconds:.1f}s"
        used = "" if step.tokens is None else plural(step.tokens, "token")
        figures = "  ".join(filter(None, (took, used)))
        is_loud = step.failed or step.kind in {"said", "printed", "ran", "used", "error"}
        lines = step.text.replace("\r\n", "\n").rstrip("\n").split("\n")
        max_lines = _LONG if step.kind in _WORDS else _SHORT
        left_out = 0 if self.whole else len(lines) - max_lines
        if left_out <= 1:
            lines_shown = [safe_log_line(line, limit=NO_LIMIT) if self.whole else safe_log_line(line) for line in lines]
        else:
            # The end of an output is more useful than its beginning.
            begin = map(safe_log_line, lines[: max_lines // 3])
            end = map(safe_log_line, lines[max_lines // 3 - max_lines :])
            lines_shown = [*begin, safe_text(f"… {plural(left_out, 'more line')}: {self.more}"), *end]
        for number, line in enumerate(lines_shown):
            label = f"{'' if number else kind:<{LABEL}}"
            text: str = line
            if figures and not number:
                text = f"{line}  ({figures})" if line else figures
            code = "" if is_loud else _QUIET
            if step.kind == "edited":
                code = _SIGNS.get(line[:1], "")
            yield (
                f"{_in_colour(label, kind_code)} {_in_colour(text, code)}"
                if self.colour
                else f"{label} {text}".rstrip()
            )


def _in_colour(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if code and text.strip() else text
