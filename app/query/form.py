"""The form of a term: what is missing or too much in it, and where its pieces are."""

from collections.abc import Iterator

from app.query.keys import Meaning, key_of
from app.query.result import Problem, Span, SpanKind
from app.query.terms import Piece, Term


def given(term: Term) -> tuple[Piece, ...]:
    """Its values, but for what is still missing behind a comma."""
    return tuple(piece for piece in term.pieces if piece.text or piece.quoted)


def broken(term: Term, wanted: Meaning) -> Problem | None:
    """What is wrong with the term's form."""
    for piece in term.pieces:
        if not piece.closed:
            return unclosed(piece)
        if wanted == "status" and not piece.quoted and "*" in piece.text:
            return Problem(
                piece.start, piece.end, "A status has no pattern.", "Write it out, or exclude some: -status:…"
            )
    if not given(term):
        return Problem(term.end, term.end, f"{term.key}: lacks its value.", f"As in {key_of(wanted).example}")
    if wanted in {"since", "until", "is"} and len(term.pieces) > 1:
        start = term.pieces[1].start - 1
        return Problem(start, term.end, f"{term.key}: takes one value.", f"As in {key_of(wanted).example}")
    return None


def unclosed(piece: Piece) -> Problem:
    """A quote that does not end."""
    return Problem(piece.start, piece.end, "The quote is not closed.", 'End it with ".')


def spans(term: Term, *, is_problem: bool = False) -> Iterator[Span]:
    """The term's pieces; all of them are a problem where the term means nothing."""
    at = term.start
    if term.negated:
        yield Span(at, at + 1, "problem" if is_problem else "sign")
        at += 1
    if term.key is not None:
        yield Span(at, term.key_end, "problem" if is_problem else "key")
    kind: SpanKind = "word" if term.key is None else "value"
    for piece in term.pieces:
        if piece.end > piece.start:
            yield Span(piece.start, piece.end, "problem" if is_problem else kind)
