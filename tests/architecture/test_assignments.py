"""A part gets what it needs from its constructor, and only its own methods change it.

First: no code assigns an attribute of another object. ``self`` and ``cls`` are not other objects,
nor is one that the same function has just made. Second: no module keeps state. State belongs to
objects that an app makes, so that two apps in one process do not share it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tests.architecture import exceptions
from tests.architecture.source import (
    Definition,
    FunctionNode,
    Module,
    dotted,
    imported_names,
    modules,
    nodes,
    parse,
)

ASSIGNED: dict[str, str] = {
    "_cli/demo/live.py record": "a log record of the demo's past day; logging has no other way",
    "_cli/output/terminal.py logging.getLogger(name)": "the switch that dictConfig turned off",
    "_cli/worker_process/supervised_child.py self._process": (
        "Popen must not wait for a process that was waited for"
    ),
    "_client/new_jobs.py error": "error.ids: also on errors of drivers, and on cancellations",
    "_storage/redis/io/dialer.py transport": "a socket that is closed already",
    "_storage/shared/errors.py copy": "a copy of an error, with its notes and its cause",
    "_worker/run/runner.py run": "a run is closed for every job: a method would be a call more",
    "_worker/run/log_capture.py record": "a log record whose secrets are masked",
    "integrations/django/_interface.py result": "Django's results are frozen but for backends",
    "integrations/fastapi.py server.state": "where Starlette keeps what belongs to a server",
}

KEPT: dict[str, str] = {
    "_system/forks.py FORK_GUARD": "forks: every thread of the process passes it",
    "_system/forks.py _inherited": "forks: what a parent opened",
    "_system/forks.py _opened": "forks: what a child must hold",
    "_system/forks.py _renewed": "forks: what a child starts anew",
    "_tasks/cancel_token.py _MAKING": (
        "a lock for the first use of a token; one for each would cost more than a no-op job"
    ),
    "integrations/django/_project.py PROJECT": (
        "Django has one set of settings, applications and tasks in a process"
    ),
    "_observe/current_run.py _secrets": "secrets of recent runs, which every log line needs",
    "_storage/shared/reader_thread.py _BESIDE": "one thread reads for all apps of the process",
    "_worker/run/log_capture.py _FACTORY": "logging has one factory of records",
}

OWN = {"self", "cls"}
CONTAINERS = {
    "dict", "list", "set", "bytearray", "deque", "defaultdict", "OrderedDict", "Counter",
    "WeakSet", "WeakKeyDictionary", "WeakValueDictionary", "count", "cycle",
}  # fmt: skip
LOCKS = {"Lock", "RLock", "Condition", "Event", "Semaphore", "local", "native_lock"}
CHANGES = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem",
    "popleft", "remove", "setdefault", "sort", "update",
}  # fmt: skip


# --- attributes of other objects ---


def assigned_from_outside(sources: Iterable[Module]) -> Iterator[tuple[str, str]]:
    """Where, whose attribute, and which: a file may assign several of one object."""
    for module in sources:
        for scope in _scopes(module.tree):
            inside = _nodes_of(scope)
            made = _made_in(inside)
            for node in inside:
                for owner, name in _assigned(node):
                    root = _root(owner)
                    if root not in made and not (isinstance(owner, ast.Name) and root in OWN):
                        whose = ast.unparse(owner)
                        yield f"{module.path} {whose}", f"line {owner.lineno}: {whose}.{name}"


def _scopes(tree: ast.Module) -> Iterator[ast.Module | FunctionNode]:
    yield tree
    for node in nodes(tree):
        if isinstance(node, FunctionNode):
            yield node


def _nodes_of(scope: ast.AST) -> list[ast.AST]:
    """Everything in a function but for the functions in it, which are scopes of their own."""
    found: list[ast.AST] = []
    waiting = [*ast.iter_child_nodes(scope)]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, FunctionNode):
            waiting.extend(ast.iter_child_nodes(node))
    return found


def _made_in(inside: Iterable[ast.AST]) -> set[str]:
    """The names of what a function makes: by a class, as a copy, or as a function or class."""
    made = set()
    for node in inside:
        if isinstance(node, Definition):
            made.add(node.name)
        elif isinstance(node, ast.Assign) and _makes(node.value):
            made |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and node.value and _makes(node.value):
            made |= {node.target.id} if isinstance(node.target, ast.Name) else set()
        elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            made |= {node.optional_vars.id} if _makes(node.context_expr) else set()
    return made


def _makes(value: ast.expr) -> bool:
    if isinstance(value, ast.NamedExpr):
        return _makes(value.value)
    if not isinstance(value, ast.Call):
        return False
    words = ast.unparse(value.func).split("(")[0].split(".")
    return words[-1] in {"cls", "copy", "type"} or any(_is_class(word) for word in words)


def _is_class(word: str) -> bool:
    bare = word.lstrip("_")
    return bare[:1].isupper() and not bare.isupper()


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Whose attributes are assigned or deleted here, and which."""
    for target in _targets(node):
        if isinstance(target, ast.Attribute):
            yield target.value, target.attr
        elif isinstance(target, ast.Subscript) and _is_call_of(target.value, {"vars"}):
            yield target.value.args[0], ast.unparse(target.slice)  # type: ignore[attr-defined]
    if isinstance(node, ast.Call) and _is_call_of(
        node, {"setattr", "delattr", "__setattr__", "__delattr__", "force_setattr"}
    ):
        yield node.args[0], ast.unparse(node.args[1])


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            found = [*targets]
        case ast.AugAssign(target=target) | ast.For(target=target) | ast.AsyncFor(target=target):
            found = [target]
        case ast.AnnAssign(target=target, value=ast.expr()):
            found = [target]
        case ast.withitem(optional_vars=ast.expr() as target):
            found = [target]
        case _:
            found = []
    while found:
        target = found.pop()
        if isinstance(target, ast.Tuple | ast.List):
            found += target.elts
        else:
            yield target.value if isinstance(target, ast.Starred) else target


def _is_call_of(node: ast.expr, names: set[str]) -> bool:
    if not isinstance(node, ast.Call) or not node.args:
        return False
    called = node.func
    name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
    return name in names


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


# --- state of modules ---


class _Name(NamedTuple):
    """A name of a module and what it is bound to there."""

    name: str
    value: ast.expr


def kept_by_modules(sources: Iterable[Module]) -> Iterator[tuple[str, str]]:
    """Names of modules whose values change, and why they are taken to."""
    every = tuple(sources)
    for module in every:
        for node in nodes(module.tree):
            if isinstance(node, ast.Global):
                for name in node.names:
                    yield f"{module.path} {name}", f"line {node.lineno}: global {name}"
    changed = {name for module in every for name in _changed(module)}
    classes = {f"{_dots(m)}.{name}": node for m in every for name, node in _classes(m)}
    for module in every:
        names = _names_in(module)
        for one in _bound(module):
            why = _state(one.value, names, classes)
            if why == "container" and f"{_dots(module)}.{one.name}" in changed:
                yield f"{module.path} {one.name}", "a container that is changed"
            elif why not in {None, "container"}:
                yield f"{module.path} {one.name}", f"a {why}"


def _dots(module: Module) -> str:
    path = module.path.removesuffix(".py").removesuffix("/__init__")
    return f"windlass.{path.replace('/', '.')}"


def _bound(module: Module) -> Iterator[_Name]:
    for node in module.tree.body:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        yield _Name(target.id, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield _Name(name, value)


def _state(
    value: ast.expr, names: Mapping[str, str], classes: Mapping[str, ast.ClassDef]
) -> str | None:
    """What kind of state a name is bound to; None: none."""
    if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
        return "container"
    if not isinstance(value, ast.Call):
        return None
    called = ast.unparse(value.func).rpartition(".")[2]
    if called in CONTAINERS:
        return "container"
    if called in LOCKS:
        return "lock"
    found = classes.get(dotted(value.func, names) or "")
    return "singleton that changes" if found is not None and _changes_itself(found) else None


def _names_in(module: Module) -> dict[str, str]:
    """What each name of a module stands for, in full."""
    own = [name for name, _ in _classes(module)] + [one.name for one in _bound(module)]
    return {**imported_names(module.tree), **{name: f"{_dots(module)}.{name}" for name in own}}


def _classes(module: Module) -> Iterator[tuple[str, ast.ClassDef]]:
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name, node


def _changes_itself(node: ast.ClassDef) -> bool:
    """Whether a method other than the constructor changes an attribute of its object."""
    for method in node.body:
        if isinstance(method, FunctionNode) and method.name not in {"__init__", "__post_init__"}:
            for inner in ast.walk(method):
                if any(_root(owner) == "self" for owner, _ in _assigned(inner)):
                    return True
                if any(_root(owner) == "self" for owner in _changed_containers(inner)):
                    return True
    return False


def _changed(module: Module) -> Iterator[str]:
    """The full names of the names of modules that this one changes."""
    names = _names_in(module)
    for node in nodes(module.tree):
        for owner in _changed_containers(node):
            if full := dotted(owner, names):
                yield full


def _changed_containers(node: ast.AST) -> Iterator[ast.expr]:
    for target in _targets(node):
        if isinstance(target, ast.Subscript):
            yield target.value
    if isinstance(node, ast.AugAssign):
        yield node.target
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            yield node.func.value
        elif _is_call_of(node, {"next"}):
            yield node.args[0]


# --- the package ---


def test_nothing_is_assigned_from_outside() -> None:
    exceptions.check(dict(assigned_from_outside(modules())), ASSIGNED)


def test_no_module_keeps_state() -> None:
    exceptions.check(dict(kept_by_modules(modules())), KEPT)


# --- the checks themselves ---


def test_assignments_from_outside_are_found() -> None:
    sample = parse(
        """
def wire(worker, parts, error):
    worker.on_beat = note
    parts.admin.registry, parts.tasks["a"].seen = 1, 2
    del worker.reason
    worker.count += 1
    vars(error)["ids"] = ()
    setattr(worker, "name", "w")

class Part:
    def start(self):
        self.inner.on_end = self.stop
        for self.inner.one in range(3): ...
        with open() as self.inner.file: ...
"""
    )
    assert sorted(told.split(": ")[1] for _, told in assigned_from_outside([sample])) == [
        "error.'ids'",
        "parts.admin.registry",
        "parts.tasks['a'].seen",
        "self.inner.file",
        "self.inner.on_end",
        "self.inner.one",
        "worker.'name'",
        "worker.count",
        "worker.on_beat",
        "worker.reason",
    ]


def test_an_object_may_change_itself_and_what_its_function_has_just_made() -> None:
    sample = parse(
        """
class Part:
    def __init__(self): self.name = ""
    @classmethod
    def make(cls): cls.made = cls(); other = cls(); other.name = "new"
    def renamed(self):
        other = copy.copy(self)
        other.name = "other"
        served = web.Server()
        served.router.slashes = False
        def call(): ...
        call.__signature__ = 1
        setattr(self, "name", "n")
"""
    )
    assert list(assigned_from_outside([sample])) == []


def test_objects_made_by_another_function_are_not_its_own() -> None:
    sample = parse(
        """
def outer():
    server = Server()
    def inner(): server.name = "changed later"
"""
    )
    assert [key for key, _ in assigned_from_outside([sample])] == ["sample.py server"]


def test_state_of_modules_is_found() -> None:
    other = parse("from windlass.sample import SHARED\nSHARED.append(1)\n", "other.py")
    sample = parse(
        """
import threading
LOCK = threading.Lock()
SEEN = {}
SHARED = []
NUMBERS = count()
TABLE = {"a": 1}
NAMES = ["x"]
total = 0

class Tally:
    def __init__(self): self.n = 0
    def add(self): self.n += 1

class Value:
    def __init__(self): self.n = 0
    def get(self): return self.n

TALLY = Tally()
VALUE = Value()

def note(key):
    global total
    SEEN[key] = next(NUMBERS) + TABLE["a"] + len(NAMES)
"""
    )
    found = sorted(key for key, _ in kept_by_modules([sample, other]))
    assert [key.removeprefix("sample.py ") for key in found] == [
        "LOCK", "NUMBERS", "SEEN", "SHARED", "TALLY", "total",
    ]  # fmt: skip
