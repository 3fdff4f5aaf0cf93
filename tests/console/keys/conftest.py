from textual import events

from tests.console.conftest import Scene


def at_once(scene: Scene, *keys: str) -> None:
    """All of them before the first one is answered."""
    for key in keys:
        scene.app.post_message(events.Key(key, key if len(key) == 1 else None))
