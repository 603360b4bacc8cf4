#!/usr/bin/env python3
"""Ports of loopback that nobody listens on, below those the kernel gives to connections.

    scripts/free_ports.py 3        # prints three, on one line

A port of the kernel's own range may become the local port of some connection before a server listens on it.
"""

import os
import pathlib
import random
import socket
import sys

# Where the kernel does not say what its range is: what Linux starts with.
EPHEMERAL_FROM = 32768
FROM = 10000
# Callers use a port and up to two further ones a thousand above it (examples/shell/operator.sh).
ABOVE = (0, 1001, 1002)
# Those who look at once look in different places.
_places = random.Random(os.getpid() * 1_000_003 + random.SystemRandom().randrange(1 << 32))


def free_ports(count):
    """So many different ports, each free a moment ago, as are those `ABOVE` it."""
    ports = []
    while len(ports) < count:
        port = _places.randrange(FROM, _ephemeral_from() - max(ABOVE))
        if port not in ports and all(_is_free(port + above) for above in ABOVE):
            ports.append(port)
    return ports


def free_port():
    """One port."""
    return free_ports(1)[0]


def _is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _ephemeral_from():
    try:
        first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        first = EPHEMERAL_FROM
    # A range that begins lower leaves nothing below it to choose from.
    return first if first > FROM + 2 * max(ABOVE) else EPHEMERAL_FROM


if __name__ == "__main__":
    print(*free_ports(int(sys.argv[1])))
