"""For the fork server: all that programs import, imported once, and kept out of their garbage collections."""

import gc
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ("anyio._backends._asyncio", "encodings.idna", "h11", "httpcore", "rich.progress_bar")
OTHERS = ("app/demo/", "app/__main__")

for file in (path.relative_to(ROOT) for name in ("app", "widgets", "storage") for path in (ROOT / name).rglob("*.py")):
    if not str(file).startswith(OTHERS):
        import_module(".".join(file.with_suffix("").parts).removesuffix(".__init__"))
for library in LIBRARIES:
    import_module(library)
gc.collect()
gc.freeze()
