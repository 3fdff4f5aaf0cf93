"""The checks: a module a subject, and this list of all of them."""

from typing import Final

from service.reviewer.checks import (
    coverage,
    documents,
    imports,
    layout,
    leftovers,
    mistakes,
    paths,
    risks,
    secrets,
    shape,
    supply,
    syntax,
)

TEXT_CHECKS: Final = (
    secrets.CHECK,
    *leftovers.CHECKS,
    *syntax.TEXT_CHECKS,
    *supply.CHECKS,
    *layout.CHECKS,
    *shape.TEXT_CHECKS,
)
"""Quick: every file is through these before the first one is parsed."""

CODE_CHECKS: Final = (
    *syntax.CODE_CHECKS,
    *risks.CHECKS,
    *mistakes.CHECKS,
    *imports.CHECKS,
    *shape.CODE_CHECKS,
)
"""For Python, which is parsed for them."""

PATH_CHECKS: Final = paths.TREE_CHECKS
"""Of the tree, by names and sizes."""

TREE_CHECKS: Final = (*shape.TREE_CHECKS, *documents.TREE_CHECKS, *coverage.TREE_CHECKS)
"""Of the tree, by contents."""

RULES: Final = {
    rule.id: rule for check in (*TEXT_CHECKS, *CODE_CHECKS, *PATH_CHECKS, *TREE_CHECKS) for rule in check.rules
}
CODE_RULES: Final = frozenset(rule.id for check in CODE_CHECKS for rule in check.rules)
