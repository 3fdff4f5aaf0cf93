"""The rules of the configuration file, read again when it changes."""

from pathlib import Path

from msgspec.structs import replace

from app.engine.text import SafeText, safe_block
from app.profiles import ConfigError, Settings
from app.profiles.load import parse


class RulesFile:
    """The rules of the configuration file; while the file has a mistake, its last valid rules."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.problem: ConfigError | None = None
        """Why the file cannot be used."""
        self._stamp = _stamp(settings.file)

    def read(self) -> Settings:
        """Return the settings with the file's automations and routes; reads it only if it changed. Blocks."""
        file, stamp = self.settings.file, _stamp(self.settings.file)
        if file is not None and stamp != self._stamp:
            self._stamp = stamp
            try:
                new = parse(file, file.read_text("utf-8"))
            except ConfigError as error:
                self.problem = error
            except (OSError, UnicodeDecodeError) as error:
                self.problem = ConfigError(f"cannot be read: {error}.", cure="Correct it.", file=file)
            else:
                self.use(new)
        return self.settings

    def use(self, new: Settings) -> None:
        """Use these automations and routes from now on."""
        self.problem, self._stamp = None, _stamp(self.settings.file)
        self.settings = replace(self.settings, automations=new.automations, notify=new.notify, profiles=new.profiles)

    def written(self, name: str) -> tuple[SafeText, ...]:
        """Return a rule's table as the file has it; empty: unknown. Blocks."""
        from app.automations.tables import read_tables  # tomlkit

        try:
            return () if self.settings.file is None else safe_block(read_tables(self.settings.file).written(name))
        except ConfigError:
            return ()


def _stamp(file: Path | None) -> tuple[int, int] | None:
    try:
        status = None if file is None else file.stat()
    except OSError:
        return None
    return None if status is None else (status.st_mtime_ns, status.st_size)
