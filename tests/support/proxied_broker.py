"""Brokers behind a proxy: what they advertise to services is its address, and tests themselves go round it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.support.broker import add_properties, running_broker
from tests.support.kafka_proxy import HOST, KafkaProxy
from tests.support.replicated_broker import Node, three_brokers
from ucci_stream.local.kafka_node import LocalBroker, pick_port

Local = TypeVar("Local", bound=LocalBroker)


@dataclass(frozen=True)
class Proxied:
    #: Its ``bootstrap`` leads past the proxy: for the test itself, and for the brokers among themselves.
    broker: LocalBroker

    proxy: KafkaProxy
    #: Of the proxy: for the services.
    address: str


@contextmanager
def proxied_broker(directory: Path) -> Iterator[Proxied]:
    routes: dict[int, int] = {}
    with running_broker(_behind(LocalBroker, routes)(directory)) as broker, KafkaProxy(routes) as proxy:
        yield Proxied(broker, proxy, _address(routes))


@contextmanager
def proxied_cluster(directory: Path) -> Iterator[Proxied]:
    routes: dict[int, int] = {}
    with three_brokers(directory, _behind(Node, routes)) as cluster, KafkaProxy(routes) as proxy:
        yield Proxied(cluster.nodes[0], proxy, _address(routes))


def _address(routes: dict[int, int]) -> str:
    return ",".join(f"{HOST}:{port}" for port in routes)


def _behind(kind: type[Local], routes: dict[int, int]) -> Callable[..., Local]:
    """Return a kind of node with one listener more, whose advertised address is a port of the proxy's."""

    class Behind(kind):  # type: ignore[valid-type, misc]
        def _choose_ports(self) -> None:
            super()._choose_ports()
            (plain, *controller), behind, before = self._ports, pick_port(), pick_port()
            routes[before] = behind
            own = f"PLAINTEXT://{HOST}:{plain}"
            more = {
                "listeners": ",".join(
                    [own, f"PROXIED://{HOST}:{behind}", *(f"CONTROLLER://{HOST}:{port}" for port in controller)]
                ),
                "advertised.listeners": f"{own},PROXIED://{HOST}:{before}",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
            }
            add_properties(self, more)

    return Behind
