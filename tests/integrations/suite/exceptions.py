"""The tests that cannot pass, and why; docs/guides/django.md argues the same."""

from __future__ import annotations

_READS = "results can be read from anywhere here; the test wants a backend that refuses it"

ARGUED = {
    "test_dummy_backend.DummyBackendTestCase.test_refresh_result": (
        "it changes the dummy's own list in memory; here the list is read from the store"
    ),
    "test_dummy_backend.DummyBackendTestCase.test_refresh_result_async": (
        "it changes the dummy's own list in memory; here the list is read from the store"
    ),
    "test_immediate_backend.ImmediateBackendTestCase.test_cannot_get_result": _READS,
    "test_immediate_backend.ImmediateBackendTestCase.test_cannot_refresh_result": _READS,
    "test_immediate_backend.ImmediateBackendTestCase.test_cannot_pass_run_after": (
        "run_after works here; the test wants a backend that refuses it"
    ),
    "test_immediate_backend.ImmediateBackendTestCase.test_throws_keyboard_interrupt": (
        "a task runs in a worker: what it raises, an interrupt too, fails the job, not the caller"
    ),
}
