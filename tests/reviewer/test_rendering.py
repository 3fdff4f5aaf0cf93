"""The review as Markdown readers see it: parsed by a real parser, foreign text stays text."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from service.reviewer.finding import RULES, CheckRule, ReviewFinding, Topic, identify
from service.reviewer.markdown import code, escaped, visible
from service.reviewer.record import Record, RecordError, Since, decode, encode
from service.reviewer.render import render
from service.reviewer.review import Focus, TurnReview
from service.reviewer.survey import ReviewScope, Survey
from service.reviewer.task import Task

BLOCKS = ["\n# H\n", "* ", "1. ", "|", "\n---\n", "~~~", "> ", "\n\n    code", "<!--", "-->", "\n```\n"]
SPANS = ["`", "``", "<b>", "](http://x)", "![", "&lt;", "\\", "__", "**", "_", "http://x.y", "@a", "$x$"]
INVISIBLE = ["\x1b[2J", "\u202e", "\ud800", "\r", "\t", "\u2028"]
MARKUP = st.sampled_from([*BLOCKS, *SPANS, *INVISIBLE])
HOSTILE = st.lists(st.one_of(MARKUP, st.text(max_size=8)), max_size=8).map("".join)
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def inline(markdown: str) -> list[Any]:
    """The inline tokens of a paragraph or heading."""
    return [child for token in PARSER.parse(markdown) for child in token.children or []]


@given(HOSTILE)
def test_code_spans_show_exactly_the_visible_text(text: str) -> None:
    """One code span, whatever the text; its content is the visible form."""
    tokens = inline(f"### {code(text)}")

    assert [token.type for token in tokens] == ["code_inline"]
    shown = visible(text)
    assert tokens[0].content.strip() == (shown.strip() or "(blank)")


@given(HOSTILE)
def test_escaped_text_is_only_text(text: str) -> None:
    """A paragraph with foreign text holds text and nothing else, and shows the visible form."""
    tokens = inline(f"before: {escaped(text)}")

    assert {token.type for token in tokens} <= {"text", "text_special"}
    assert "".join(token.content for token in tokens).strip() == f"before: {visible(text.strip())}".strip()


@given(HOSTILE)
def test_visible_text_is_one_printable_line(text: str) -> None:
    """No control, format, surrogate or line separator is left."""
    assert visible(text).isprintable()


def a_review(paths: list[str], text: str, turn: int) -> TurnReview:
    findings = [
        ReviewFinding(rule, path, n, text, text)
        for n, (rule, path) in enumerate(zip(RULES.values(), paths * 9, strict=False))
    ]
    found = tuple(identify(findings))
    return TurnReview(
        task=Task("run_1", turn, text, None, text, {}),
        scope=ReviewScope("a" * 40, "b" * 40, text, dict.fromkeys(paths)),
        focus=Focus(frozenset({Topic.DOCS}), tuple(paths), unclear=(text,)),
        survey=Survey(found, frozenset(), {}, frozenset(paths), 1, tree_judged=False, broken=(text,)),
        reported=found,
        beside_focus=1,
        since=Since(found, found, found, found) if turn > 1 else None,
        since_problem=text,
    )


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(st.lists(HOSTILE, min_size=1, max_size=4, unique=True), HOSTILE, st.integers(1, 2))
def test_no_text_marks_up_a_whole_review(paths: list[str], text: str, turn: int) -> None:
    """Headings are ours, links and images there are none, and the only HTML is the record at the end."""
    document = render(a_review(paths, text, turn))
    tokens = PARSER.parse(document)
    children = {child.type for token in tokens for child in token.children or []}
    tops = [token.tag for token in tokens if token.type == "heading_open"]

    assert children <= {
        "text",
        "text_special",
        "code_inline",
        "softbreak",
        "hardbreak",
        "strong_open",
        "strong_close",
    } | {"em_open", "em_close"}
    assert tops.count("h1") == 1
    assert tops.count("h3") <= len(paths)
    assert [token.type for token in tokens].count("html_block") == 1
    assert tokens[-1].type == "html_block"
    assert not {"fence", "code_block", "hr", "lheading"} & {token.type for token in tokens}
    assert document.encode("utf-8").decode("utf-8") == document


@given(st.lists(st.tuples(HOSTILE, st.integers(0, 10**6)), max_size=5))
def test_records_come_back_as_they_were(places: list[tuple[str, int]]) -> None:
    """Any path survives the record, and none can end the comment that holds it."""
    rules = list(RULES.values())
    record = Record(
        whole_tree=True,
        findings=tuple(
            ReviewFinding(rules[n], path, line, "", severity=rules[n].severity, fingerprint=f"{n:016x}")
            for n, (path, line) in enumerate(places)
        ),
    )

    text = encode(record)

    assert text.count("-->") == 1
    assert "\n" not in text
    assert decode(f"# Review\n\n{text}\n".encode()) == record


@pytest.mark.parametrize(
    "damage",
    [
        "{}",
        "[]",
        "null",
        '{"kind":"all","findings":[]}',
        '{"kind":"tree","findings":[[1,"todo","note","a",1]]}',
        "{" * 100_000,
        '"x"',
        "1",
    ],
)
def test_damaged_records_are_refused(damage: str) -> None:
    """Whatever stands in the comment ends in one kind of error."""
    with pytest.raises(RecordError):
        decode(f"<!-- runwarden-review {damage} -->".encode())


def test_rules_that_no_longer_exist_are_forgotten() -> None:
    """A record of an older reviewer is read without them, and its history is passed over."""
    rows = ",".join(f'["0123456789abcdef","{rule}","note","a.py",1]' for rule in ("long-file", "todo"))
    document = f'{{"v":1,"kind":"diff","findings":[{rows}],"history":[[1,"ab"]]}}'

    record = decode(f"<!-- runwarden-review {document} -->".encode())

    assert [one.rule for one in record.findings] == [CheckRule.TODO]


def test_findings_are_capped_with_a_count() -> None:
    """A flood of findings stays readable: so many places, and how many more."""
    found = tuple(identify(ReviewFinding(CheckRule.TODO, f"f{n % 150}.py", n, "x", str(n)) for n in range(4_500)))
    flood = render(replace(a_review(["a"], "x", 1), reported=found))

    assert "- and 10 more" in flood
    assert "And 1500 more in 50 more files" in flood
    assert "4500 notes" in flood
