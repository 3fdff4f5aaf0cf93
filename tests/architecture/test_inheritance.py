"""Screens, widgets and the app have at most two of our own classes above them."""

import pkgutil
from importlib import import_module

from textual.dom import DOMNode

import app
import widgets
from tests.architecture.test_rooms import kind_of

MAX_ABOVE = 2


def test_no_class_has_more_than_two_base_classes_of_ours() -> None:
    """A reader finds what a class does in its own file, its collaborators or at most two base classes."""
    above: dict[str, int] = {}
    for package in (app, widgets):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if kind_of(found.name) not in {"screen", "widget"}:
                continue
            for kind in vars(import_module(found.name)).values():
                if isinstance(kind, type) and issubclass(kind, DOMNode) and kind.__module__ == found.name:
                    ours = [base for base in kind.__mro__[1:] if base.__module__.startswith(("app.", "widgets."))]
                    above[f"{found.name}.{kind.__name__}"] = len(ours)

    assert above["app.runs.screen.RunsScreen"] > 0
    assert {name for name, count in above.items() if count > MAX_ABOVE} == set()
