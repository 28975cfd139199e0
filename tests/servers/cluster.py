"""Three Valkey servers that share the slots of one cluster."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import redis

from tests.servers.binaries import PATIENCE, ServerFailed, free_port
from tests.servers.valkey import ValkeyServer

_SLOTS = 16384
_NODES = 3


class ValkeyCluster:
    """Made and joined at once. No replicas: every node answers for a third of the slots."""

    def __init__(self, folder: Path) -> None:
        self._buses = [free_port() for _ in range(_NODES)]
        self.nodes: list[ValkeyServer] = []
        try:
            for bus in self._buses:
                own = {"cluster_enabled": "yes", "cluster_port": str(bus), "databases": "1"}
                self.nodes.append(ValkeyServer(folder / f"node-{bus}", **own))
            self._join()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """It names one node, which tells of the others."""
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    def _join(self) -> None:
        clients = [redis.Redis.from_url(node.url) for node in self.nodes]
        bounds = [_SLOTS * part // _NODES for part in range(_NODES + 1)]
        for client, (first, after) in zip(clients, pairwise(bounds), strict=True):
            _say(client, "CLUSTER ADDSLOTSRANGE", first, after - 1)
        for node, bus in zip(self.nodes[1:], self._buses[1:], strict=True):
            _say(clients[0], "CLUSTER MEET", "127.0.0.1", node.port, bus)
        deadline = time.monotonic() + PATIENCE
        while not all(map(_agrees, clients)):
            if time.monotonic() > deadline:
                message = "the nodes did not find each other"
                raise ServerFailed(message)
            time.sleep(0.02)
        for client in clients:
            client.close()

    def close(self) -> None:
        for node in self.nodes:
            node.close()


def _say(client: redis.Redis, *words: str | int) -> Any:
    return client.execute_command(*words)  # type: ignore[no-untyped-call]


def _agrees(client: redis.Redis) -> bool:
    told = _say(client, "CLUSTER INFO")
    facts = told if isinstance(told, dict) else dict(_facts(bytes(told)))
    return facts["cluster_state"] == "ok" and int(facts["cluster_known_nodes"]) == _NODES


def _facts(told: bytes) -> list[tuple[str, str]]:
    pairs = (line.partition(":") for line in told.decode().splitlines() if ":" in line)
    return [(name, value.strip()) for name, _, value in pairs]
