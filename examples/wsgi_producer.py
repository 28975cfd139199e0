"""Enqueueing from code without an event loop: Flask, Django, any WSGI program, scripts.

The jobs wait in the file for ``windlass worker wsgi_producer:app``.
"""

from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.util import setup_testing_defaults

from windlass import Windlass

app = Windlass("sqlite:///jobs.db")


@app.task
def resize(path: str, width: int) -> str:
    return f"{path} is {width} pixels wide"


def upload(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Enqueue in a view: ``enqueue_sync`` returns when the job is committed."""
    job = resize.enqueue_sync(environ["PATH_INFO"], width=100)
    start_response("202 Accepted", [("Content-Type", "text/plain")])
    return [f"job {job.id} is {app.blocking.refresh(job).state}".encode()]


if __name__ == "__main__":
    request: dict[str, Any] = {"PATH_INFO": "/cover.png"}
    setup_testing_defaults(request)
    for line in upload(request, print):
        print(line.decode())
