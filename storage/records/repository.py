"""A repository reference: a platform and whatever that platform calls its repositories (spec 2.3)."""

import json
from typing import Final, Self

from msgspec import Struct

DEFAULT_PLATFORM: Final = "github"
_WITHOUT_GROUPS: Final = {"github": "GitHub", "forgejo": "Forgejo"}
_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
"""Made once: `json.dumps` with options makes one a call."""
_NONE: Final = frozenset({"null", '""', "{}"})


class Repository(Struct, frozen=True, gc=False):
    """One repository as the service names it."""

    platform: str
    """Empty: the service sent something other than a reference, which is in the data."""
    data_json: str
    """The reference's `data` object as canonical JSON: hashable, and complete for platforms that are not known yet."""

    @classmethod
    def of(cls, platform: str, data: object) -> Self:
        """A reference from its parts, with the data in canonical order."""
        return cls(platform, _CANONICAL.encode(data))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a reference as users write it: `owner/repo`, or `gitlab:group/project`.

        Raises:
            ValueError: The text is not a repository; the message shows the forms.
        """
        platform, colon, path = text.strip().partition(":")
        if not colon:
            platform, path = DEFAULT_PLATFORM, platform
        owner, slash, name = path.rpartition("/")
        if not (slash and owner and name and platform) or path.startswith("/") or any(c.isspace() for c in path):
            raise ValueError(f"{text!r} is not a repository: write owner/repo, or gitlab:group/project.")
        if platform in _WITHOUT_GROUPS:
            if "/" in owner:
                raise ValueError(f"{text!r} has too many parts for {_WITHOUT_GROUPS[platform]}: write owner/repo.")
            return cls.of(platform, {"owner": owner, "repo": name})
        return cls.of(platform, {"project_path": path})

    @property
    def data(self) -> dict[str, object]:
        """The reference's `data` object, as the service's JSON has it; empty where that is something else."""
        loaded = json.loads(self.data_json)
        return loaded if isinstance(loaded, dict) else {}

    @property
    def path(self) -> str:
        """Its usual name: `owner/repo` or `group/project`; the raw data if the platform is unknown."""
        data = self.data
        for shape in (("owner", "repo"), ("group", "project"), ("project_path",), ("path",)):
            parts = [data.get(key) for key in shape]
            if all(isinstance(part, str) and part for part in parts):
                return "/".join(str(part) for part in parts)
        text = json.loads(self.data_json)
        return text if isinstance(text, str) else self.data_json

    @property
    def label(self) -> str:
        """The path, with its platform unless that is GitHub; `parse` reads it back."""
        if self.platform in {"", DEFAULT_PLATFORM} and self.data_json in _NONE:
            return "(no repository)"
        return self.path if self.platform in {"", DEFAULT_PLATFORM} else f"{self.platform}:{self.path}"
