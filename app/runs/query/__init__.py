"""The query language: one line of text for a `RunFilter`, and back.

Pure: no I/O and no clock, only the standard library and the records. See docs/use/queries.md.
"""

from app.runs.query.parse import Query, QueryProblem, SpanKind, TextSpan, both, parse, read_order
from app.runs.query.suggest import Suggestion, Vocabulary, suggestions
from app.runs.query.terms import unknown_status
from app.runs.query.write import written, written_order
