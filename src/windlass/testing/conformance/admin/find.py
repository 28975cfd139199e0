"""`AdminStore.find`: every field of the filter, text, and pages."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass._core.job.job import AttemptError, ClaimedJob, JobId, NewJob
from windlass._core.job.outcome import GaveUp, Raised, Snoozed
from windlass._core.job.state import Shown, State
from windlass._core.job.unique import UniqueKey, Window
from windlass._storage.protocol.actions import Cancel, Delete, Requeue
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    INSTANT,
    MINUTE,
    OOPS,
    a_job,
    add,
    claim,
    claim_one,
    enlist,
    every,
    failed,
    happened,
    keyed,
    obeyed,
    started,
    succeeded,
)

__all__ = ["FilterConformance", "PageConformance", "TextConformance"]

PARENT = JobId("0" * 31 + "1")
TRACE = """Traceback (most recent call last):
  File "/srv/shop/jobs/mail.py", line 12, in send
    deliver(letter)
smtplib.SMTPException: no
"""
BROKEN = AttemptError("SMTPException", "no", TRACE)
FRAME = "jobs/mail.py send"
THREE = (State.FAILED, State.WAITING, State.RUNNING)
ODD = ("100%", "a_b", "a\\b", "it's", 'say "hi"', "[a-z]", "a*b?", "x.y", "--", "ñandú 夜 💥")
PLAIN = ("100 of", "axb", "ab", "its", "say hi", "a", "acb", "xzy", "-", "nandu")


async def _claimed(storage: Storage) -> ClaimedJob:
    (claimed,) = await claim(storage, worker="w2", queue="mail")
    return claimed


async def _saying(storage: Storage, *words: str) -> list[JobId]:
    """Return jobs with these words in their payloads, as they are."""
    return await add(storage, *(a_job(payload=word.encode()) for word in words))


def _hiding(*, tags: tuple[str, ...] = (), **asked: Any) -> NewJob:
    """Return a job with a secret argument, as its tag says."""
    payload = b'{"card":"needle-77","note":"gift"}'
    return a_job(payload=payload, tags=("secret:card", *tags), **asked)


class FilterConformance:
    """Each field narrows, alone and together with others."""

    async def test_every_field_narrows_alone_and_together_with_the_state(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # ADMIN-1, ADMIN-2
        await failed(storage)
        await add(storage, a_job(delay=DAY))
        clock.advance(HOUR)
        wanted = await self._three_alike(storage)
        clock.advance(HOUR)
        await failed(storage)
        await add(storage, a_job(delay=DAY))
        fields = [
            JobFilter(queue="mail"),
            JobFilter(task="send"),
            JobFilter(tenant="acme"),
            JobFilter(principal="zoë"),
            JobFilter(tag="vip"),
            JobFilter(correlation_id="c-1"),
            JobFilter(parent=PARENT),
            JobFilter(worker="w2"),
            JobFilter(error="SMTPException"),
            JobFilter(frame=FRAME),
            JobFilter(text="letter 7"),
            JobFilter(created_from=clock.now() - HOUR, created_until=clock.now()),
        ]
        for field in fields:
            assert await every(storage, field) == wanted[::-1], field
            for job, state in zip(wanted, THREE, strict=True):
                narrowed = msgspec.structs.replace(field, states=[state])
                assert await every(storage, narrowed) == [job], narrowed
            none = msgspec.structs.replace(field, states=[State.SUCCEEDED])
            assert await every(storage, none) == [], none

    async def _three_alike(self, storage: Storage) -> list[JobId]:
        """Return jobs that agree in every field: failed, waiting and running."""
        await enlist(storage, "w2")
        wanted: list[JobId] = []
        for _ in range(3):
            job = a_job(
                queue="mail",
                task="send",
                payload=b'["letter 7"]',
                tenant="acme",
                principal="zo\u00eb",
                tags=("new", "vip"),
                correlation_id="c-1",
                parent=PARENT,
            )
            wanted += await add(storage, job)
        outcomes = (GaveUp(BROKEN), Raised(BROKEN), Raised(BROKEN, 0 * MINUTE))
        for outcome in outcomes:
            await happened(storage, await _claimed(storage), outcome)
        await _claimed(storage)
        return wanted

    async def test_all_fields_narrow_together(self, storage: Storage) -> None:
        asked = {"tenant": "acme", "principal": "p", "correlation_id": "c", "tags": ("t",)}
        (wanted,) = await add(storage, a_job(queue="a", task="x", **asked))
        for name in asked:
            other: object = ("u",) if name == "tags" else "other"
            await add(storage, a_job(queue="a", task="x", **{**asked, name: other}))
        await add(storage, a_job(queue="b", task="x", **asked), a_job(queue="a", task="y", **asked))
        everything = JobFilter(
            states=[State.WAITING],
            shown=[Shown.READY],
            queue="a",
            task="x",
            tenant="acme",
            principal="p",
            correlation_id="c",
            tag="t",
        )
        assert await every(storage, everything) == [wanted]

    async def test_a_tag_is_one_whole_tag(self, storage: Storage) -> None:
        odd = ("vip", 'a"b', "c,d", "%", "é")
        (wanted,) = await add(storage, a_job(tags=odd))
        await add(storage, a_job(tags=("vip2", "b")), a_job(tags=("VIP", "a", "c", "d")), a_job())
        for tag in odd:
            assert await every(storage, JobFilter(tag=tag)) == [wanted], tag
        for tag in ("vi", "c", "e", ""):
            assert wanted not in await every(storage, JobFilter(tag=tag)), tag

    async def test_a_key_is_found_while_it_is_held_and_afterwards(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await failed(storage)
        old = await failed(storage, keyed("k"))
        (holder,) = await add(storage, keyed("k", delay=DAY))
        timed = await failed(storage, keyed("t", Window.FOR_A_TIME))
        assert await every(storage, JobFilter(key="k")) == [holder, old]
        assert await every(storage, JobFilter(key="k", states=[State.WAITING])) == [holder]
        assert await every(storage, JobFilter(key="t")) == [timed]
        clock.advance(DAY)
        assert await every(storage, JobFilter(key="t")) == [timed]
        assert await every(storage, JobFilter(key="K")) == []

    async def test_a_worker_is_who_runs_a_job_or_ran_it_last(self, storage: Storage) -> None:
        mine = await started(storage, worker="w1")
        other = await started(storage, worker="w2")
        await add(storage, a_job(delay=DAY))
        assert await every(storage, JobFilter(worker="w1")) == [mine.claim.job]
        await happened(storage, mine, Raised(OOPS, 0 * MINUTE))
        again = await claim_one(storage, "w2")
        assert again.claim.job == mine.claim.job
        assert await every(storage, JobFilter(worker="w1")) == []
        await succeeded(storage, other)
        assert await every(storage, JobFilter(worker="w2")) == [other.claim.job, again.claim.job]
        running = JobFilter(worker="w2", states=[State.RUNNING])
        assert await every(storage, running) == [again.claim.job]

    async def test_an_error_that_was_overcome_is_not_found(self, storage: Storage) -> None:
        running = await started(storage)
        await happened(storage, running, Raised(BROKEN, 0 * MINUTE))
        job = running.claim.job
        assert await every(storage, JobFilter(error="SMTPException", frame=FRAME)) == [job]
        await succeeded(storage, await claim_one(storage))
        assert await every(storage, JobFilter(error="SMTPException")) == []
        assert await every(storage, JobFilter(frame=FRAME)) == []

    async def test_an_error_without_a_place_is_found_by_that(self, storage: Storage) -> None:
        nowhere = await started(storage)
        await happened(storage, nowhere, GaveUp(AttemptError("Gone", "no trace")))
        somewhere = await started(storage)
        await happened(storage, somewhere, GaveUp(BROKEN))
        await add(storage, a_job())
        assert await every(storage, JobFilter(frame="")) == [nowhere.claim.job]
        assert await every(storage, JobFilter(error="Gone", frame="")) == [nowhere.claim.job]

    async def test_the_time_of_making_is_a_half_open_range(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        made: list[JobId] = []
        first = clock.now()
        for _ in range(3):
            made += await add(storage, a_job())
            clock.advance(MINUTE)
        second, third = first + MINUTE, first + 2 * MINUTE
        assert await every(storage, JobFilter(created_from=second)) == [made[2], made[1]]
        assert await every(storage, JobFilter(created_until=second)) == [made[0]]
        between = JobFilter(created_from=second, created_until=third)
        assert await every(storage, between) == [made[1]]
        late = JobFilter(created_from=second + INSTANT, created_until=third)
        assert await every(storage, late) == []

    async def test_the_time_of_the_end_is_a_half_open_range_of_ended_jobs(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        first = clock.now()
        dead: list[JobId] = []
        for _ in range(3):
            dead.append(await failed(storage))
            clock.advance(MINUTE)
        await add(storage, a_job())
        second, third = first + MINUTE, first + 2 * MINUTE
        assert await every(storage, JobFilter(finished_from=first)) == dead[::-1]
        assert await every(storage, JobFilter(finished_until=second)) == [dead[0]]
        between = JobFilter(finished_from=second, finished_until=third, states=[State.FAILED])
        assert await every(storage, between) == [dead[1]]
        assert await every(storage, JobFilter(finished_from=third + INSTANT)) == []

    async def test_states_are_found_as_people_see_them(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        retried = await started(storage)
        await happened(storage, retried, Raised(OOPS))
        due_again = await started(storage)
        await happened(storage, due_again, Raised(OOPS, 0 * MINUTE))
        back = await failed(storage, a_job(priority=-1))
        await obeyed(storage, Requeue(), back)
        asleep = await started(storage, a_job(priority=-2))
        await happened(storage, asleep, Snoozed(DAY))
        later, soon = await add(storage, a_job(delay=DAY), a_job(delay=MINUTE))
        dead = await failed(storage, a_job(priority=-3))
        clock.advance(MINUTE)
        seen = {
            shown: {*await every(storage, JobFilter(shown=[shown]))}
            for shown in (Shown.SCHEDULED, Shown.READY, Shown.RETRYING, Shown.FAILED)
        }
        assert seen == {
            Shown.SCHEDULED: {later, asleep.claim.job},
            Shown.READY: {back, soon},
            Shown.RETRYING: {retried.claim.job, due_again.claim.job},
            Shown.FAILED: {dead},
        }
        both = JobFilter(shown=[Shown.FAILED, Shown.SCHEDULED], states=[State.WAITING])
        assert {*await every(storage, both)} == {later, asleep.claim.job}
        assert await every(storage, JobFilter(shown=[])) == []


class TextConformance:
    """Words in payloads and errors, taken as they are."""

    async def test_text_is_looked_for_in_the_payload_and_the_last_error(
        self, storage: Storage
    ) -> None:  # ADMIN-3
        paid = a_job(payload=b'{"order":"needle"}')
        kind, told = await started(storage), await started(storage)
        await happened(storage, kind, GaveUp(AttemptError("NeedleError", "x")))
        await happened(storage, told, GaveUp(AttemptError("E", "where is the needle?")))
        await add(storage, paid, a_job(task="needle", tags=("needle",), tenant="needle"))
        traced = await started(storage, a_job(queue="default", priority=-1))
        await happened(storage, traced, GaveUp(AttemptError("E", "x", "needle")))
        wanted = [paid.id, told.claim.job, kind.claim.job]
        assert await every(storage, JobFilter(text="needle")) == wanted
        failures = JobFilter(text="needle", states=[State.FAILED])
        assert await every(storage, failures) == wanted[1:]
        assert await every(storage, JobFilter(text="needle", task="needle")) == []

    async def test_only_the_letters_a_to_z_are_the_same_in_both_cases(
        self, storage: Storage
    ) -> None:
        upper, lower = await _saying(storage, "MÜLLER Kelvin", "müller \u212aelvin")
        assert await every(storage, JobFilter(text="LLER")) == [lower, upper]
        assert await every(storage, JobFilter(text="müLLer")) == [lower]
        assert await every(storage, JobFilter(text="MÜller")) == [upper]
        assert await every(storage, JobFilter(text="KELVIN")) == [upper]
        assert await every(storage, JobFilter(text="\u212aELVIN")) == [lower]

    async def test_no_character_is_a_wildcard(self, storage: Storage) -> None:
        jobs = await _saying(storage, *ODD)
        await _saying(storage, *PLAIN)
        for text, job in zip(ODD, jobs, strict=True):
            assert await every(storage, JobFilter(text=text)) == [job], text

    async def test_bytes_that_are_no_text_are_in_nobodys_way(self, storage: Storage) -> None:
        (odd, _, found) = await add(
            storage,
            a_job(payload=b"\xff\xfe\x00needle\x80"),
            a_job(payload=b"\xc3"),
            a_job(payload="ü needle".encode()),
        )
        assert await every(storage, JobFilter(text="needle")) == [found, odd]
        assert await every(storage, JobFilter(text="ü")) == [found]

    async def test_the_same_words_are_found_in_errors(self, storage: Storage) -> None:
        running = await started(storage)
        await happened(storage, running, GaveUp(AttemptError("E", "50% of 'a_b' \\ Ünï 💥")))
        for text in ("50% of", "'A_B'", "\\", "Ünï", "💥"):
            assert await every(storage, JobFilter(text=text)) == [running.claim.job], text
        for text in ("50_", "a-b", "ünï"):
            assert await every(storage, JobFilter(text=text)) == [], text

    async def test_hidden_text_is_not_found_and_ends_no_page(self, storage: Storage) -> None:
        running = await started(storage, _hiding())
        await happened(storage, running, GaveUp(AttemptError("E", "no needle-77 here")))
        hides = running.claim.job
        _, also, _ = await add(storage, a_job(), _hiding(), a_job())
        for text in ("nee", "needle", "needle-77"):
            page = await storage.admin.find(JobFilter(text=text), limit=1)
            assert (list(page), page.next, page.reached) == ([], None, None), text
        assert await every(storage, JobFilter(text="gift"), limit=1) == [also, hides]
        assert await every(storage, JobFilter(text="NO *** HERE")) == [hides]

    async def test_a_name_made_of_a_secret_finds_nothing_for_people(self, storage: Storage) -> None:
        word = "x-needle-77"
        names = {"principal": word, "correlation_id": word}
        new = _hiding(tags=(word, "plain"), unique=UniqueKey(word), **names)
        (job,) = await add(storage, new)
        fields = [JobFilter(key=word), JobFilter(tag=word), JobFilter(principal=word)]
        fields.append(JobFilter(correlation_id=word))
        for wanted in fields:
            assert await every(storage, wanted) == [job]
            shown = msgspec.structs.replace(wanted, as_shown=True)
            page = await storage.admin.find(shown, limit=1)
            assert (list(page), page.next) == ([], None), wanted
        assert await every(storage, JobFilter(tag="plain", as_shown=True)) == [job]


class PageConformance:
    """Reading all pages finds every matching job once."""

    async def test_pages_hold_every_matching_job_once(self, storage: Storage) -> None:  # ADMIN-5
        jobs = await add(storage, *(a_job(tags=("even", "odd")[n % 2 :][:1]) for n in range(9)))
        for limit in (1, 2, 5):
            assert await every(storage, JobFilter(tag="even"), limit=limit) == jobs[::-2]
            assert await every(storage, JobFilter(text="{}"), limit=limit) == jobs[::-1]
            waiting = JobFilter(states=[State.WAITING])
            assert await every(storage, waiting, limit=limit) == jobs[::-1]

    async def test_a_page_holds_no_more_than_it_is_asked_for(self, storage: Storage) -> None:
        jobs = await add(storage, *(a_job() for _ in range(3)))
        page = await storage.admin.find(JobFilter(), limit=2)
        assert [job.id for job in page] == [jobs[2], jobs[1]]
        assert page.next is not None
        rest = await storage.admin.find(JobFilter(before=page.next), limit=2)
        assert ([job.id for job in rest], rest.next) == ([jobs[0]], None)

    async def test_jobs_that_come_and_go_between_pages_move_no_other(
        self, storage: Storage
    ) -> None:
        jobs = await add(storage, *(a_job() for _ in range(4)))
        page = await storage.admin.find(JobFilter(), limit=2)
        await add(storage, a_job(), a_job())
        await obeyed(storage, Delete(), jobs[2])
        assert await every(storage, JobFilter(before=page.next), limit=1) == [jobs[1], jobs[0]]

    async def test_the_last_page_says_that_it_is_the_last(self, storage: Storage) -> None:
        nothing = await storage.admin.find(JobFilter(), limit=2)
        assert (list(nothing), nothing.next, nothing.reached) == ([], None, None)
        await add(storage, a_job())
        page = await storage.admin.find(JobFilter(), limit=2)
        assert (len(page), page.next, page.reached) == (1, None, None)

    async def test_a_page_that_ends_at_the_holder_of_a_key_has_a_cursor_or_is_the_last(
        self, storage: Storage
    ) -> None:
        (holder,) = await add(storage, keyed("k", delay=DAY))
        page = await storage.admin.find(JobFilter(key="k"), limit=1)
        assert ([job.id for job in page], page.next) == ([holder], None)
        await obeyed(storage, Cancel(), holder)
        (holder,) = await add(storage, keyed("k", delay=DAY))
        page = await storage.admin.find(JobFilter(key="k"), limit=1)
        assert [job.id for job in page] == [holder]
        # No larger number: many programs that read JSON round those above 2**53.
        assert isinstance(page.next, int)
        assert page.next <= page[0].seq + 1
        assert len(await every(storage, JobFilter(key="k"), limit=1)) == 2
