"""A customer buys something: store a job for the receipt."""

from shop import app, send_receipt

job = send_receipt.enqueue_sync(7, "ada@example.org")
print("the job is", app.blocking.refresh(job).state)
