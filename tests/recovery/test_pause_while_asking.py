"""A process that stands still while a group's coordinator is asked goes on afterwards, whatever the client makes of it.

The client's own deadline for such a question ended the whole process (librdkafka issue 4605, exit -6).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from ucci_stream.local.kafka_node import LocalBroker

pytestmark = pytest.mark.broker

#: Longer than the answer is waited for.
PAUSE_S = 1.1
#: Asks again and again, and stands still each time, at some moment until the answer.
ASKS = """
import os, signal, sys, threading
from ucci_runtime.broker.kafka_lifeline import GroupPeers
peers = GroupPeers({"bootstrap.servers": sys.argv[1], "log_level": 0}, "group", "instance")
peers.exist()
for pause in range(8):
    threading.Timer(0.003 * pause, os.kill, (os.getpid(), signal.SIGSTOP)).start()
    peers.exist()
"""


def test_a_pause_while_a_group_is_asked_ended_the_process(broker: LocalBroker) -> None:
    asking = subprocess.Popen([sys.executable, "-c", ASKS, broker.bootstrap])
    pauses = 0
    while os.WIFSTOPPED(status := os.waitpid(asking.pid, os.WUNTRACED)[1]):
        pauses += 1
        time.sleep(PAUSE_S)  # the pause itself
        asking.send_signal(signal.SIGCONT)
    asking.returncode = os.waitstatus_to_exitcode(status)
    assert asking.returncode == 0
    assert pauses
