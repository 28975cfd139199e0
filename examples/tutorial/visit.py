"""A customer puts three things into the basket, one after the other."""

from reminders import remind

for items in (1, 2, 3):
    job = remind.options(delay="1h").enqueue_sync("ada@example.org", items)
    print(f"{items} in the basket: new job {job.created}, replaced {job.replaced}")
