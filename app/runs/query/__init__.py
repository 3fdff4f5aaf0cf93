"""The query language: one line of text for a `RunFilter`, and back.

Pure: no I/O and no clock, only the standard library and the records. See docs/use/queries.md.
"""

from app.runs.query.parse import Query, QueryProblem, both, listed, parse, read_order, written_order
from app.runs.query.suggest import Vocabulary, suggestions
from app.runs.query.terms import unknown_status
