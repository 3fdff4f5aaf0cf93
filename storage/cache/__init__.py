"""The cache: what was seen of the service, readable at once; if it is lost, it is fetched again."""

from typing import TYPE_CHECKING

__all__ = ["Cache"]

if TYPE_CHECKING:
    from storage.cache.cache import Cache
else:

    def __getattr__(name: str) -> object:
        # Imported at first use, since the first frame needs only one module of this package.
        if name != "Cache":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from storage.cache.cache import Cache

        return Cache
