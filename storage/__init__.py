"""Runwarden's databases: the cache, which can be fetched again, and the ledger and the state, which cannot.

Every function that uses a file may raise `StorageError`, whose message has the file and the fix.

Here, the root of the errors of the console, the command line and their files; the service has its own:

RunwardenError
├── StorageError        a database cannot be used (`storage.errors`)
├── LedgerRefusedError  the ledger's state forbids a step (`storage.errors`)
├── ApiError            a request has no usable answer (`app.api.errors`)
├── ConfigError         the configuration cannot be used (`app.profiles`), and TokenError, RouteError
├── ActionRefusedError  a write is not sent (`app.actions`), and ImportFileError, CannotActError
├── GitError            git, or a local repository, refuses (`app.results.git`)
└── others              of one screen or command each

A screen shows any of them: those of a database in every screen's banner, the others in a toast. Anything that merely
stops work (a signal, a reader that has gone, an answer of "no") has another base.
"""


class RunwardenError(Exception):
    """A failure whose text explains the problem to a user, with the fix if there is one."""

    kind: str = "failed"
    """A stable word for JSON, the ledger and the screen."""


class UnreadableTextError(ValueError):
    """A text that is no value of its kind; `str()` is the problem and the fix."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem} {fix}")
        self.problem, self.fix = problem, fix
