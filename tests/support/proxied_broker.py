"""A broker behind a proxy: what it advertises to services is its address, and tests themselves go round it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.broker import add_properties, running_broker
from tests.support.kafka_proxy import HOST, KafkaProxy
from ucci_stream.local.kafka_node import LocalBroker, pick_port


@dataclass(frozen=True)
class Proxied:
    #: Its ``bootstrap`` leads past the proxy: for the test itself.
    broker: LocalBroker

    proxy: KafkaProxy
    #: Of the proxy: for the services.
    address: str


class _Behind(LocalBroker):
    """A node with one listener more, whose advertised address is a port of the proxy's."""

    def _choose_ports(self) -> None:
        super()._choose_ports()
        (plain, controller), self.behind, self.before = self._ports, pick_port(), pick_port()
        own = f"PLAINTEXT://{HOST}:{plain}"
        more = {
            "listeners": f"{own},PROXIED://{HOST}:{self.behind},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"{own},PROXIED://{HOST}:{self.before}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        add_properties(self, more)


@contextmanager
def proxied_broker(directory: Path) -> Iterator[Proxied]:
    with (
        running_broker(_Behind(directory)) as broker,
        KafkaProxy(broker.before, broker.behind) as proxy,
    ):
        yield Proxied(broker, proxy, f"{HOST}:{broker.before}")
