"""The form that starts a run, or one of the service's named agents with a field for each of its inputs."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from textual import events, on, work
from textual.containers import Vertical
from textual.widget import Widget

from app.actions.drafts import Values
from app.actions.refusals import FieldProblem
from app.actions.screen_fields import BRANCH, PAIRS_HINT, Field, editable_text, format_pairs, format_value, read_pairs
from app.actions.screen_form import ActionForm, Built
from app.api.errors import ApiError
from app.api.requests import Json, StartAgent, StartRun, WriteRequest
from app.engine.engine import Engine
from app.engine.text import closest, json_or_text
from storage.errors import StorageError
from storage.records import Repository
from storage.records.organization import AgentInput, NamedAgent
from widgets.forms.field import ChoiceField, InputField, PairsField, ParagraphField

WORDS: Final = "instructions"
"""The input that every agent takes."""


class NewRunForm(ActionForm):
    """POST /external/runs (spec 4.3), or for a named agent POST /external/agents/{name}/runs (spec 4.4)."""

    TITLE_TEXT = "New run"

    FIELDS = (
        Field("name", "agent", "Empty: no named agent.", ChoiceField, "optional"),
        Field("repository", "repository", "owner/repo, or gitlab:group/project", ChoiceField, "owner/repo"),
        BRANCH,
        Field(WORDS, "instructions", "", ParagraphField, "What should the agent do?"),
        Field("inputs", "inputs", PAIRS_HINT, PairsField, "key=value"),
        Field("metadata", "metadata", PAIRS_HINT, PairsField, "key=value"),
    )

    def __init__(self, engine: Engine, repository: str = "", *, focus: str = "") -> None:
        """Prepare; a repository that cannot be shown exactly is left out. `focus`: the field to begin with."""
        self._agents: dict[str, NamedAgent] = {}
        """The service's agents by name; empty if the service does not list them."""
        self._declared = dict[str, AgentInput]()
        """The inputs that have fields, by the key of their field; a foreign name may be no key."""
        draft = f"run.start:{repository}" if repository else "run.start"
        super().__init__(engine, draft=draft, values={"repository": editable_text(repository)}, focus=focus)

    def make_rows(self) -> Sequence[Widget]:
        *rows, inputs, metadata = super().make_rows()
        self._box = Vertical(id="agent-inputs")
        inputs.display = False
        return (*rows, self._box, inputs, metadata)

    def build(self, values: Values) -> Built:
        text = {field.key: values.get(field.key, "") for field in self.FIELDS}
        name = text["name"].strip()
        branch = text["branch_name"].strip() or None
        words = text[WORDS]
        key = "inputs" if name else "metadata"
        extra, unread = read_pairs(key, text[key])
        if name:
            # The platform's prefix is ours; this endpoint takes the bare group/project.
            bare = text["repository"].strip().removeprefix("gitlab:")
            inputs: dict[str, Json] = {WORDS: words} if words.strip() else {}
            return StartAgent(name, bare, branch, inputs | extra), unread
        try:
            return StartRun(words, Repository.parse(text["repository"]), branch, extra), unread
        except ValueError:
            # With a placeholder, so that the other fields can be checked.
            verb = "Write" if text["repository"].strip() else "Name it:"
            wrong = FieldProblem("repository", f"{verb} owner/repo, or gitlab:group/project.")
            return StartRun(words, Repository.of("github", {}), branch, extra), (wrong, *unread)

    def values_of(self, request: StartRun | StartAgent) -> Values:
        """The field texts for this request; an agent's instructions are among its inputs."""
        values = dict.fromkeys((field.key for field in self.FIELDS), "") | {"branch_name": request.branch_name or ""}
        if isinstance(request, StartRun):
            values |= {"repository": request.repository.label, WORDS: request.instructions}
            return values | {"metadata": format_pairs(request.metadata)}
        inputs = dict(request.inputs)
        words = request.inputs.get(WORDS)
        if isinstance(words, str) and words.strip():
            values[WORDS] = words
            del inputs[WORDS]
        return values | {"name": request.name, "repository": request.repository, "inputs": format_pairs(inputs)}

    def consequence(self, request: WriteRequest) -> str:
        if isinstance(request, StartAgent):
            return f"Starts the agent {request.name} once on {request.repository}, as it is configured there."
        if not isinstance(request, StartRun):
            return ""
        branch = "a branch that the service creates"
        if request.branch_name:
            branch = f"branch {request.branch_name}"
        return f"Starts one run on {request.repository.label}, on {branch}."

    @on(events.Mount)
    @work(group="agents")
    async def read_agents(self) -> None:
        names: tuple[str, ...] = ()
        try:
            self._agents = await self.engine.actions.agents()
            names = tuple(self._agents)
        except ApiError:
            # Suggestions are optional: without a list, names used from this machine are offered.
            with suppress(StorageError):
                names = tuple(dict.fromkeys((await self.engine.ledger.agents()).values()))
        if isinstance(field := self.fields["name"], ChoiceField):
            field.offer(names, {name: agent.description for name, agent in self._agents.items()})
        self._name_changed()

    @property
    def values(self) -> Values:
        """The values by field; inputs with a separate field are among the lines of `inputs`."""
        values = super().values
        inputs, unread = read_pairs("inputs", values["inputs"])
        if unread or not self._declared:
            return values
        for key, declared in self._declared.items():
            text = self.fields[key].value if key in self.fields else None
            if text is not None and text.strip():
                inputs[declared.name] = text if declared.type == "text" else json_or_text(text.strip())
            elif text is not None:
                inputs.pop(declared.name, None)
        return values | {"inputs": format_pairs(inputs)}

    def field_changed(self, key: str) -> bool:
        if key == "name":
            self._name_changed()
        elif key == "metadata":
            self._show_pairs()
        return key != "inputs" or self.fields["inputs"].display

    def _name_changed(self) -> None:
        agent = self._agents.get(self.values["name"].strip())
        # Names that do not fit on a line cannot be entered here.
        inputs = [
            declared
            for declared in (() if agent is None else agent.inputs)
            if declared.name != WORDS and read_pairs("", editable_text(f"{declared.name}=1"))[0] == {declared.name: 1}
        ]
        by_key = {f"input-{number}": declared for number, declared in enumerate(inputs)}
        if by_key != self._declared:
            self.fields["inputs"].fill(self.values["inputs"])
            for key in self._declared:
                self.fields.pop(key, None)
            self._declared = by_key
            self._show_inputs()
        self._show_pairs()

    @work(group="inputs", exclusive=True)
    async def _show_inputs(self) -> None:
        texts = self._texts(self.values["inputs"])
        rows = {key: InputField(key, declared, texts.get(key, "")) for key, declared in self._declared.items()}
        await self._box.remove_children()
        await self._box.mount_all(rows.values())
        self.fields |= rows
        self._complain()
        self._show_pairs()

    def fill(self, values: Values) -> None:
        super().fill(values | self._texts(values.get("inputs", "")))
        self._show_pairs()

    def _texts(self, pairs: str) -> Values:
        """The texts of the input fields, from these lines."""
        inputs, _ = read_pairs("inputs", pairs)
        return {
            key: value if isinstance(value, str) and declared.type == "text" else format_value(value)
            for key, declared in self._declared.items()
            if (value := inputs.get(declared.name)) is not None
        }

    def _show_pairs(self) -> None:
        """Show metadata or inputs if the request accepts them, or if they have a value that would be lost."""
        values = self.values
        has_name = bool(self.values["name"].strip())
        inputs, unread = read_pairs("inputs", values["inputs"])
        has_others = bool(unread) or not {declared.name for declared in self._declared.values()}.issuperset(inputs)
        self.fields["inputs"].display = has_others or (has_name and not self._declared)
        self.fields["metadata"].display = not has_name or bool(values["metadata"].strip())

    def problems(self) -> tuple[FieldProblem, ...]:
        """The problems; if the service lists its agents, also unknown names and undeclared or missing inputs."""
        problems = list(super().problems())
        values = self.values
        if not (name := values["name"].strip()):
            if values["inputs"].strip():
                problems.append(FieldProblem("inputs", "Name the agent, or delete its inputs."))
            return tuple(problems)
        if values["metadata"].strip():
            problems.append(FieldProblem("metadata", "A named agent takes inputs: delete the metadata."))
        if self._agents and name not in self._agents:
            near = closest(name, self._agents)
            advice = f"did you mean {near}?" if near else "empty this field for the list."
            problems.append(FieldProblem("name", f"There is no such agent; {advice}"))
        inputs, unread = read_pairs("inputs", values["inputs"])
        if unread:
            return tuple(problems)
        if WORDS in inputs and values[WORDS].strip():
            problems.append(FieldProblem("inputs", "The instructions are above; delete them here."))
        names = {WORDS, *(declared.name for declared in self._declared.values())}
        unknown = [key for key in inputs if self._declared and key not in names]
        problems += [FieldProblem("inputs", f"{name} takes no input {key}: delete it.") for key in unknown]
        # Only definite faults: the service checks the types.
        for key, declared in self._declared.items():
            value = inputs.get(declared.name)
            text = value if isinstance(value, str) else format_value(value)
            if value is None and declared.is_required:
                problems.append(FieldProblem(key, "It needs a value."))
            elif value is not None and declared.choices and text not in declared.choices:
                advice = f"; did you mean {near}?" if (near := closest(text, declared.choices)) else ""
                problems.append(FieldProblem(key, f"One of {', '.join(declared.choices)}{advice}"))
        return tuple(problems)
