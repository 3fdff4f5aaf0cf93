"""Metadata of a release: a package's page is elsewhere, where links and pictures need their full address.

`page` and `files` in pyproject.toml (tool.hatch.metadata.hooks.custom) name the project's page, and where its files can
be fetched as they are. Where one is empty, its links stay as they are.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class ReleaseMetadata(MetadataHookInterface):
    """Sets the readme and the project's addresses."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in what pyproject.toml calls dynamic."""
        page, files = (self.config[name].rstrip("/") for name in ("page", "files"))
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, page, files)}
        metadata["urls"] = {"Homepage": page, "Changelog": f"{page}/CHANGELOG.md"} if page else {}


def absolute(text: str, page: str, files: str) -> str:
    """The text with pictures below `files` and other links below `page`; an empty one leaves its links."""

    def full(found: re.Match[str]) -> str:
        base = files if found[1] else page
        return f"{found[1]}[{found[2]}]({base}/{found[3]})" if base else found[0]

    return re.sub(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)", full, text)
