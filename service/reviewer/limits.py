"""Every bound of the reviewer: whatever a repository holds, a review ends, soon, and says where it stopped."""

from typing import Final

TASK_BYTES: Final = 8 * 1024 * 1024
"""The longest task read from standard input."""

TREE_ENTRIES: Final = 200_000
"""Paths known of a tree; beyond it, checks that need to know every path are left out."""

REVIEWED_FILES: Final = 10_000
"""Files whose content is checked."""

FILE_BYTES: Final = 512 * 1024
"""A longer file is judged by its name and size only."""

TOTAL_BYTES: Final = 64 * 1024 * 1024
"""Content read in one review."""

BUDGET_S: Final = 7.0
"""Seconds of processor time for the checks of file contents; what is left out then is named in the review."""

TEXT_SHARE: Final = 0.5
"""The part of the budget after which no further file is read."""

CODE_SHARE: Final = 0.85
"""The part of the budget after which no further file is parsed; what remains is for the checks of the tree."""

GIT_TIMEOUT_S: Final = 30.0
"""Seconds one git command may take."""

LINE_CHARACTERS: Final = 2_000
"""A longer line is generated text: only its beginning is searched."""

FINDINGS_A_FILE: Final = 200
"""Findings kept of one file."""

FINDINGS_RECORDED: Final = 2_000
"""Findings remembered for the next turn."""

RECORD_BYTES: Final = 2 * 1024 * 1024
"""The longest earlier review that is read back."""

HISTORY_TURNS: Final = 50
"""Turns named in the history of a review."""
