"""What the Runs room opens with: the view and the order that were left, before anything is read of the service."""

from app.config import Profile, Settings, data_folder
from app.console.remembered import FILE, Memory, Remembered
from app.console.views import ALL, View, Wanted, views_of


def memory_of(settings: Settings, profile: Profile) -> Memory:
    """Where the console remembers things of this profile."""
    return Memory(data_folder(settings, profile) / FILE)


def first_wanted(settings: Settings, remembered: Remembered) -> Wanted:
    """The view that was left, in the order that was left; a line that was typed is not brought back."""
    views = views_of(settings.views, remembered.views)
    return Wanted.of(named(views, remembered.view), remembered.sort)


def named(views: tuple[View, ...], name: str) -> View:
    """The view of that name; all runs, where there is none."""
    return next((view for view in views if view.name.casefold() == name.casefold()), ALL)
