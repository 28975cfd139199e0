"""Signatures, and chains of them, which start as flows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack

from windlass._app.app import Windlass
from windlass._core.job.job import JobId
from windlass._core.values.names import shown
from windlass._core.values.result_types import is_results
from windlass._core.values.signatures import hints_of
from windlass._tasks.call import Call
from windlass._tasks.flows.flow import Flow, Group, Node
from windlass._tasks.task import Task
from windlass.errors import InvalidArgument
from windlass.integrations.celery._end import AnyResult, End, after
from windlass.integrations.celery._instead import OF_CANVASES, refuse_attribute
from windlass.integrations.celery._options import (
    ApplyKeywords,
    OptionReader,
    check_names,
    refuse_options,
)
from windlass.integrations.celery._results import AsyncResult

__all__ = ["Canvas", "ChainSignature", "SeveralJobs", "Signature", "checked"]


class Canvas(ABC):
    """A signature, or several in an order."""

    @property
    @abstractmethod
    def heads(self) -> Sequence[Signature]:
        """The signatures that take the result of the step before."""

    @abstractmethod
    def draw(
        self,
        flow: Flow,
        before: End | None = None,
        then: Canvas | None = None,
        into: Group[Any] | None = None,
    ) -> End:
        """Add its jobs to ``flow``. ``before``, ``then``: the neighbouring steps. ``into``: the
        group that its last job belongs to.
        """

    @abstractmethod
    def apply_async(self) -> AnyResult:
        """Store its jobs."""

    def delay(self) -> AnyResult:
        """Store its jobs."""
        return self.apply_async()

    def __or__(self, other: Canvas) -> ChainSignature:
        return ChainSignature([self, other])

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            refuse_attribute(self, name, OF_CANVASES)


class Signature(Canvas):
    """A task with arguments and options. Made by ``task.s(…)``, ``task.si(…)`` and
    ``celery.signature(name)``.
    """

    def __init__(
        self,
        app: Windlass,
        reader: OptionReader,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
    ) -> None:
        """Make one. Users call ``task.s(…)``."""
        self.app: Windlass = app
        self._reader = reader
        self.name: str = name
        """The name of the task."""
        self.args: tuple[Any, ...] = tuple(args)
        self.kwargs: dict[str, Any] = dict(kwargs or {})
        self.immutable: bool = immutable
        """Whether it ignores the result of the step before."""
        self.given: dict[str, Any] = {}
        """Its options, as Celery names them."""
        self.links: list[Canvas] = []
        """Canvases that run after its success."""
        self.errors: list[Signature] = []
        """Signatures that run after its failure."""

    def __repr__(self) -> str:
        return f"<Signature {self.name!r}>"  # without its arguments, which may be secret

    @property
    def heads(self) -> Sequence[Signature]:
        """Itself."""
        return (self,)

    @property
    def takes_results(self) -> bool:
        """Whether its first parameter is annotated as `Results`."""
        task = self._task
        if task is None or not task.parameters:
            return False
        return is_results(hints_of(task.function).get(task.parameters[0].name))

    def set(self, **options: Unpack[ApplyKeywords]) -> Self:
        """Change its options, as in Celery, and return it."""
        given = check_names(options)
        for link in _several(given.pop("link", ())):
            self.link(link)
        for link in _several(given.pop("link_error", ())):
            self.link_error(link)
        self.given.update(given)
        return self

    def clone(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> Signature:
        """Return a copy. ``args`` come before its own, unless it is immutable."""
        first, more = ((), {}) if self.immutable else (args or (), kwargs or {})
        made = Signature(
            self.app,
            self._reader,
            self.name,
            (*first, *self.args),
            {**self.kwargs, **more},
            immutable=self.immutable,
        )
        made.given = dict(self.given)
        made.links, made.errors = [*self.links], [*self.errors]
        return made

    def link(self, signature: Canvas) -> Canvas:
        """Run ``signature`` after its success, with the result as the first argument."""
        self.links.append(checked(signature))
        return signature

    def link_error(self, signature: Signature) -> Signature:
        """Run ``signature`` after its failure. It takes the id of the failed job, or nothing if it
        is immutable. In a chain it also runs if a step before has failed, which cancels this one:
        for one call per chain, give it to the chain.
        """
        given: object = signature
        if not isinstance(given, Signature):
            message = f"link_error takes one signature, such as report.si(…), got {shown(given)}"
            raise InvalidArgument(message)
        self.errors.append(signature)
        return signature

    def on_error(self, signature: Signature) -> Self:
        """Call `link_error`, and return this signature."""
        self.link_error(signature)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function in this process, now."""
        task = self._task
        if task is None:
            message = f"task {self.name!r} is not registered here: store a job with delay()"
            raise InvalidArgument(message)
        made = self.clone(args, kwargs)
        return task(*made.args, **made.kwargs)

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult[Any]:
        """Store a job. ``args`` come before its own."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[ApplyKeywords],
    ) -> AsyncResult[Any]:
        """Store a job; with links, a flow."""
        made = self.clone(args, kwargs).set(**options)
        return AsyncResult(made.enqueue() if made.is_plain else made.start(), app=self.app)

    def enqueue(self) -> JobId:
        """Store its job without links, and return the id."""
        options = self._reader.read(self.given)
        if (task := self._task) is None:
            self._check_named(self.args)
            return self.app.blocking.enqueue(self.name, self.kwargs, **options).id
        return task.options(**options).enqueue_sync(*self.args, **self.kwargs).id

    def start(self) -> JobId:
        """Store its job and those linked to it as a flow, and return the id of its job."""
        flow = Flow(self.name)
        node = self.add_to(flow, None, flow)
        self.app.blocking.start(flow)
        return node.id

    def call(self, first: tuple[Any, ...] = ()) -> Call[Any]:
        """Return the Windlass call. ``first``: arguments before its own."""
        options = self._reader.read(self.given)
        if "id" in options:
            message = (
                f"task_id= of {self.name} is for a single job: leave it out in a canvas, whose "
                f"jobs have ids before the start (see Flow)"
            )
            raise InvalidArgument(message)
        if (task := self._task) is None:
            self._check_named((*first, *self.args))
            return self.app.call(self.name, self.kwargs, **options)
        return task.options(**options).call(*first, *self.args, **self.kwargs)

    def draw(
        self,
        flow: Flow,
        before: End | None = None,
        then: Canvas | None = None,  # noqa: ARG002 -- its result fits any next step
        into: Group[Any] | None = None,
    ) -> End:
        """Add its job, and those that are linked to it."""
        return End(self.add_to(flow, before, into or flow), before=before)

    def add_to(self, flow: Flow, before: End | None, owner: Flow | Group[Any]) -> Node[Any]:
        """Add its job to ``owner``, and the linked ones to ``flow``."""
        node = owner.add(self.call(self.arguments_after(before)), after=after(before))
        for link in self.links:
            link.draw(flow, End(node))
        for error in self.errors:
            first = () if error.immutable else (node.id,)
            flow.add(error.call(first), after=node, when="failed")
        return node

    def arguments_after(self, before: End | None) -> tuple[Any, ...]:
        """Return the arguments that the step before adds."""
        return () if before is None or self.immutable else (before.argument_for(self),)

    @property
    def is_plain(self) -> bool:
        """Whether it is one job, and nothing is linked to it."""
        return not (self.links or self.errors)

    @property
    def _task(self) -> Task[..., Any] | None:
        return self.app.tasks.find(self.name)

    def _check_named(self, args: Sequence[Any]) -> None:
        if args:
            message = (
                f"task {self.name!r} is not registered here, so Windlass does not know the names "
                f"of its parameters: import its module, or give the arguments in kwargs="
            )
            raise InvalidArgument(message)


class SeveralJobs(Canvas):
    """A chain or a group. It starts as one flow."""

    def __init__(self, members: Iterable[Canvas], kind: str) -> None:
        self.members: list[Canvas] = [checked(member) for member in members]
        self._kind = kind
        self.error: Signature | None = None
        """The signature that runs if one of its jobs has failed."""
        if not self.members:
            message = f"a {kind} needs at least one signature, such as {kind}(task.s(1), …)"
            raise InvalidArgument(message)
        _refuse_inner_errors(self.members, kind)

    def __repr__(self) -> str:
        return f"<{self.title}>"

    @property
    def title(self) -> str:
        """The name of its flow."""
        return f"{self._kind} of {len(self.members)}, first {self.heads[0].name}"

    def on_error(self, signature: Signature) -> Self:
        """Run ``signature``, made by ``task.si(…)``, when all have ended and one has failed."""
        self.error = self._checked_error("on_error", signature)
        return self

    def _checked_error(self, option: str, given: object) -> Signature:
        if not isinstance(given, Signature) or not given.immutable or self.error is not None:
            message = (
                f"{option} of a {self._kind} takes one signature made by task.si(…), got "
                f"{shown(given)}. For the id of the failed job: task.s(…).on_error(report.s()), "
                f"which also runs for jobs that a failure before them cancels"
            )
            raise InvalidArgument(message)
        return given

    def apply_async(
        self, args: Any = None, kwargs: Any = None, *, link_error: Any = None, **options: Any
    ) -> AnyResult:
        """Store all jobs as one flow, whole or not at all. ``link_error``: as `on_error`."""
        refuse_options({"args": args, "kwargs": kwargs, **options}, f"a {self._kind}")
        app, error = self.heads[0].app, self.error
        if link_error:
            several = _several(link_error)
            given = several[0] if len(several) == 1 else link_error
            error = self._checked_error("link_error", given)
        flow = Flow(self.title, on_failed=None if error is None else error.call())
        end = self.draw(flow)
        return end.answer(app.blocking.start(flow), app)

    def __call__(self) -> AnyResult:
        """Call `apply_async`."""
        return self.apply_async()


class ChainSignature(SeveralJobs):
    """Steps, each of which takes the result of the one before. Made by `chain` and ``|``."""

    def __init__(self, steps: Iterable[Canvas], kind: str = "chain") -> None:
        """Make one. A chain among the steps adds its own steps."""
        given = [checked(step) for step in steps]
        flat = [step.members if isinstance(step, ChainSignature) else (step,) for step in given]
        super().__init__([step for several in flat for step in several], kind)
        _refuse_inner_errors(given, kind)

    @property
    def heads(self) -> Sequence[Signature]:
        """Those of the first step."""
        return self.members[0].heads

    def draw(
        self,
        flow: Flow,
        before: End | None = None,
        then: Canvas | None = None,
        into: Group[Any] | None = None,
    ) -> End:
        """Add the steps, one after the other."""
        *firsts, last = self.members
        for step, following in zip(firsts, self.members[1:], strict=True):
            before = step.draw(flow, before, following)
        return last.draw(flow, before, then, into)


def _refuse_inner_errors(members: Iterable[Canvas], kind: str) -> None:
    for member in members:
        if isinstance(member, SeveralJobs) and member.error is not None:
            message = f"on_error belongs to the whole canvas: give it to the {kind}"
            raise InvalidArgument(message)


def _several(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else (given,)


def checked(given: object) -> Canvas:
    """Refuse what is no signature."""
    if not isinstance(given, Canvas):
        message = f"a canvas is made of signatures such as task.s(1), got {shown(given)}"
        raise InvalidArgument(message)
    return given
