"""Words that say nothing, or that have a better one in ARCHITECTURE.md, are not used in names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from tests.architecture import exceptions
from tests.architecture.source import Module, definitions, modules, parse

INSTEAD = {
    "manager": "what it does: claimer, runner, finisher …",
    "helper": "what it does",
    "helpers": "what they do",
    "util": "a module named for its noun",
    "utils": "a module named for its noun",
    "common": "a module named for its noun",
    "base": "the thing itself, or a protocol",
    "misc": "a module named for its noun",
    "handle": "the verb that is meant",
    "data": "payload, result, row …",
    "info": "the record's own name",
    "do": "the verb that is meant",
    "status": "state",
    "kill": "cancel for jobs, interrupt for shutdown",
    "abort": "cancel for jobs, interrupt for shutdown",
    "terminate": "cancel for jobs, interrupt for shutdown",
    "message": "job, event or error text",
    "ack": "finish, or the verb of the transition",
    "nack": "retry, or the verb of the transition",
}
PROCESS_AS_A_VERB = re.compile(r"_*process(_.*)?")

ALLOWED: dict[str, str] = {
    "_core/flows/results.py Outcome.error_message": "the name of the field in stored records",
    "_tasks/handle.py": "a noun: what a producer holds of a job",
    "integrations/celery/_results.py AsyncResult.status": "Celery's name for the state",
    "integrations/django/management/commands/windlass_worker.py Command.handle": (
        "Django's name for what a command does"
    ),
}


def words(name: str) -> list[str]:
    """``loadData_v2`` and ``LoadData`` both hold ``load`` and ``data``."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def vague_names(sources: Iterable[Module]) -> Iterator[tuple[str, str]]:
    for module in sources:
        for part in PurePosixPath(module.path).with_suffix("").parts:
            yield from _judge(module.path, part)
        for name, node in definitions(module.tree):
            bare = node.name
            yield from _judge(f"{module.path} {name}", bare)
            if bare.islower() and PROCESS_AS_A_VERB.fullmatch(bare):
                yield f"{module.path} {name}", "instead of process: the verb that is meant"


def _judge(where: str, name: str) -> Iterator[tuple[str, str]]:
    for word in words(name):
        if word in INSTEAD:
            yield where, f"instead of {word}: {INSTEAD[word]}"


def test_names_use_the_words_of_the_vocabulary() -> None:
    exceptions.check(dict(vague_names(modules())), ALLOWED)


def test_vague_names_are_found_in_any_place() -> None:
    sample = parse(
        "class JobManager:\n"
        "    def handle_it(self):\n"
        "        def loadInfo(): ...\n"
        "def process_job(): ...\n",
        "storage/utils.py",
    )
    assert [where for where, _ in vague_names([sample])] == [
        "storage/utils.py",
        "storage/utils.py JobManager",
        "storage/utils.py JobManager.handle_it",
        "storage/utils.py JobManager.handle_it.loadInfo",
        "storage/utils.py process_job",
    ]


def test_good_names_are_left_alone() -> None:
    sample = parse(
        "class ChildProcess:\n    def handler(self): ...\ndef database(): ...\ndef domain(): ...\n"
    )
    assert list(vague_names([sample])) == []
