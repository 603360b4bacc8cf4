#!/usr/bin/env python3
"""Ports of loopback that nobody listens on, below those the kernel gives to connections.

    scripts/free_ports.py 3        # prints three, on one line

A port of the kernel's own range may become the local port of some connection before a server listens on it. Checks run beside
each other and start again what they killed: a port that was given out is not given again within CLAIMED_S.
"""

import contextlib
import fcntl
import os
import pathlib
import random
import socket
import sys
import tempfile
import time

# Where the kernel does not say what its range is: what Linux starts with.
EPHEMERAL_FROM = 32768
FROM = 10000
# Callers use a port and up to two further ones a thousand above it (examples/shell/operator.sh).
ABOVE = (0, 1001, 1002)
# Longer than any check takes.
CLAIMED_S = 3600
DRAWS_MAX = 100_000
_CLAIMS = pathlib.Path(tempfile.gettempdir()) / f"llmx-ports-{os.getuid()}"


def free_ports(count):
    """So many different ports, free a moment ago and claimed by nobody, as are those `ABOVE` them."""
    ports = []
    with _claims() as claimed:
        for _ in range(DRAWS_MAX):
            if len(ports) == count:
                break
            port = random.randrange(FROM, _ephemeral_from() - max(ABOVE))
            places = [port + above for above in ABOVE]
            if claimed.isdisjoint(places) and all(map(_is_free, places)):
                ports.append(port)
                claimed.update(places)
    if len(ports) < count:
        raise OSError(f"no port is free and unclaimed; those of an hour are in {_CLAIMS}")
    return ports


@contextlib.contextmanager
def _claims():
    """The ports that were given out lately; those added to it count as given out from now on."""
    with _CLAIMS.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        # A writer that was killed may have left half a line.
        lines = [line.split() for line in file]
        now, given = time.time(), {int(port): int(at) for port, at in (line for line in lines if len(line) == 2)}
        given = {port: at for port, at in given.items() if 0 <= now - at < CLAIMED_S}
        claimed = set(given)
        yield claimed
        file.truncate(0)
        file.writelines(f"{port} {given.get(port, int(now))}\n" for port in sorted(claimed))


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
