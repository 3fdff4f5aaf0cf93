"""What a service may send although the spec has it otherwise: the oddities that every test of sync draws from."""

from typing import Any, Final

from tests.sync.peer import OMITTED

ODD: Final[dict[str, dict[str, Any]]] = {
    "status null": {"status": None},
    "status a number": {"status": 3},
    "status missing": {"status": OMITTED},
    "repository null": {"repository": None},
    "repository missing": {"repository": OMITTED},
    "repository a string": {"repository": "acme/api"},
    "repository a list": {"repository": ["acme", "api"]},
    "platform a number": {"repository": {"platform": 7, "data": {"owner": "acme"}}},
    "data a string": {"repository": {"platform": "github", "data": "acme/api"}},
    "branch an object": {"branch_name": {"name": "main"}},
    "branch a number": {"branch_name": 12},
    "times as objects": {"created_at": {"seconds": 1}, "updated_at": [1]},
    "numeric run_id": {"run_id": 4711},
}
"""Fields of a run that can be kept, and shown as received."""
UNIDENTIFIED: Final[dict[str, dict[str, Any]]] = {
    "run_id null": {"run_id": None},
    "run_id missing": {"run_id": OMITTED},
    "run_id empty": {"run_id": ""},
    "run_id an object": {"run_id": {"id": 1}},
}
"""Fields of a run that can only be counted."""
TOTALS: Final = ("12", 12.0, True, "many", -1, [], {}, 10**30)
"""Instead of the number of runs."""
HOSTS: Final = ({"status": "healthy", "group": 7}, {}, {"status": None}, {"status": 1}, "healthy", [], {"host": {}})
"""Instead of what is known of a code host."""
