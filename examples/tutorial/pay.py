"""Two customers pay. The bank does not answer to one and declines the other."""

from payments import charge

charge.enqueue_sync(7, "4111-5000")
charge.enqueue_sync(8, "4111-0000")
