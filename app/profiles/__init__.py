"""The configuration: one TOML file and a few environment variables, as frozen settings.

Imports nothing slow, such as pydantic: it is loaded before the first painted screen.
"""

from app.profiles.load import (
    CACHE_FILE,
    LEDGER_FILE,
    STATE_FILE,
    Choice,
    config_path,
    data_folder,
    data_root,
    example_text,
    load,
)
from app.profiles.settings import (
    ConfigError,
    ConsoleSettings,
    HistorySettings,
    NotifyRoute,
    NotifySettings,
    PollSettings,
    Profile,
    RepositoryAddress,
    Settings,
    Template,
    UserCommand,
    ViewSettings,
)
