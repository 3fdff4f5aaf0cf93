"""The rooms of the console, in the order of their keys."""

from typing import Final

from widgets.frame.bars import Tab

OVERVIEW: Final = "profiles"
"""The room of all profiles; it has no tab, for its subject is not the profile on show."""

TABS: Final = (
    Tab("runs", "1", "Runs", "Runs"),
    Tab("health", "2", "Health", "Health"),
    Tab("organizations", "3", "Organizations", "Orgs"),
    Tab("insights", "4", "Insights", "Insights"),
    Tab("activity", "6", "Activity", "Activity"),
)
