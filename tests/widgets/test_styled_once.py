"""A style sheet is parsed once."""

from typing import Any

import pytest
from textual.css import stylesheet

from widgets.frame.styled_once import CachedStylesheet


def test_each_source_is_parsed_once_for_a_theme(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, and whatever is added; another theme's variables are new to all of them."""
    parsed: list[str] = []
    plain = stylesheet.parse

    def noted(scope: str, css: str, *more: Any, **options: Any) -> Any:
        parsed.append(css)
        return plain(scope, css, *more, **options)

    monkeypatch.setattr(stylesheet, "parse", noted)
    sheet = CachedStylesheet({"paper": "white"})
    for number in range(100):
        sheet.add_source(f".c{number} {{ background: $paper; }}")
    sheet.reparse()
    sheet.add_source(".late { background: $paper; }")
    sheet.set_variables({"paper": "white"})
    sheet.reparse()
    assert (len(parsed), len(sheet.rules)) == (101, 101)

    sheet.set_variables({"paper": "black"})
    sheet.reparse()
    assert len(parsed) == 202
    assert {rule.styles.background.hex for rule in sheet.rules} == {"#000000"}
