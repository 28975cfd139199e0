"""Two customers order. The second one's card is declined."""

from orders import order_flow
from shop import app

app.blocking.start(order_flow(7, card="4111-1111", to="ada@example.org"))
app.blocking.start(order_flow(8, card="4111-0000", to="bob@example.org"))
