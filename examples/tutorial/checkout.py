"""Store an order and start its flow in one transaction: both exist, or neither."""

import os

import psycopg
from orders import order_flow
from shop import app


def check_out(connection: psycopg.Connection, order: int, *, broken: bool = False) -> None:
    with connection.transaction():
        connection.execute("INSERT INTO orders VALUES (%s)", [order])
        flow = order_flow(order, card="4111-1111", to="ada@example.org")
        app.blocking.start(flow, connection=connection)
        if broken:
            raise ConnectionError("the web server dies here")


if __name__ == "__main__":
    with psycopg.connect(os.environ["WINDLASS_URL"], autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        check_out(connection, 9)
        try:
            check_out(connection, 10, broken=True)
        except ConnectionError as error:
            print("order 10:", error)
        print("orders:", connection.execute("SELECT id FROM orders").fetchall())
