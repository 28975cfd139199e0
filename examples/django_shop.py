"""Django: a job is stored when the order is committed, and not when it is rolled back.

In a project the settings stand in settings.py, and ``manage.py windlass_worker`` runs the jobs.
"""

import django
from django.conf import settings
from django.db import connection, transaction

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}},
    INSTALLED_APPS=["windlass.integrations.django"],
    WINDLASS={"URL": "sqlite:///jobs.db"},
)
django.setup()

from windlass.integrations.django import enqueue_on_commit, fresh_connections, get_app  # noqa: E402

app = get_app()


@app.task
@fresh_connections
def send_receipt(order: int) -> str:
    return f"receipt for order {order} sent, {connection.vendor} says"


async def work() -> list[str]:
    async with app.worker():
        jobs = [app.job(job.id) for job in await app.admin.jobs.find()]
        return [await job.result(timeout=10) for job in jobs]


if __name__ == "__main__":
    with transaction.atomic():
        enqueue_on_commit(send_receipt, 7)
    with transaction.atomic():
        enqueue_on_commit(send_receipt, 8)
        transaction.set_rollback(True)
    print(*app.blocking.run(work()), sep="\n")
