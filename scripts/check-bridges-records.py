#!/usr/bin/env python3
"""Signed records, read by strangers: PyPI `PyJWT` and `joserfc` verify what `llmx award export` has written, with the key set alone.

Usage: scripts/check-bridges-records.py LLMX

LLMX is the binary under test. A nats-server (NATS_SERVER, else scripts/nats-server) and `llmx demo` make a log, `llmx archive` its
archive. Each record must verify by both packages, be refused by both once a byte of it has changed, and say in its payload what its
RFC 8785 form says. An archive that is written while three engines are killed in turn must give the bytes of one that is written
behind them. Exit code 1: it does not. Where PyPI cannot be had the part is NOT RUN, and the exit code 0.
"""

import base64
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from free_ports import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ["PyJWT[crypto]==2.15.1", "joserfc==1.8.0"]
RECORDS_MIN = 20
# Calls while engines are killed: how many a second, for how long, and how long after the last kill the next engine dies, in seconds.
RATE, DURATION_S, KILLS, PAUSE_S = 20, 12, 4, 2
# Run by the Python of the environment, which has the packages: arguments are the key set and the records' folder.
STRANGER = '''
import json, pathlib, sys
import jwt
from joserfc import jws
from joserfc.jwk import KeySet

document = json.loads(pathlib.Path(sys.argv[1]).read_text())
by_pyjwt, by_joserfc = jwt.PyJWKSet.from_dict(document), KeySet.import_key_set(document)


def read(record):
    """The payload, as both packages read it; an error where one refuses the record."""
    header = jwt.get_unverified_header(record)
    assert header["typ"] == "llmx-award+jwt", header
    options = {"verify_aud": False, "verify_iat": False, "require": ["iss", "iat", "jti"]}
    claims = jwt.decode(record, by_pyjwt[header["kid"]], algorithms=["EdDSA"], options=options)
    payload = jws.deserialize_compact(record, by_joserfc, algorithms=["EdDSA"]).payload
    assert json.loads(payload) == claims, "the packages differ"
    # Integers and texts with ASCII names: then this is the form of RFC 8785.
    canonical = json.dumps(claims, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert payload == canonical, "not in canonical form"
    return claims


def is_refused(record):
    refusals = 0
    try:
        jwt.decode(record, by_pyjwt.keys[0], algorithms=["EdDSA"], options={"verify_aud": False, "verify_iat": False})
    except jwt.PyJWTError:
        refusals += 1
    try:
        jws.deserialize_compact(record, by_joserfc, algorithms=["EdDSA"])
    except Exception:
        refusals += 1
    return refusals == 2


states = {}
for path in sorted(pathlib.Path(sys.argv[2]).glob("*/*.jws")):
    record = path.read_text()
    claims = read(record)
    assert claims["jti"] == f"{claims['negotiation']}/{claims['lot']}/{claims['award_no']}", claims["jti"]
    assert path.parent.name == claims["negotiation"], path
    header, payload, signature = record.split(".")
    other = "B" if payload[40] == "A" else "A"
    assert is_refused(".".join([header, payload[:40] + other + payload[41:], signature])), f"{path}: an altered record passes"
    states[claims["state"]] = states.get(claims["state"], 0) + 1
print(json.dumps(states))
'''


def run(*command, **more):
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True, **more)
    if ran.returncode != 0:
        sys.exit(f"records: {command[0]} {command[1]}: {ran.stderr.strip()[-800:]}")
    return ran.stdout


def environment(home):
    """A Python with the packages; the reason where it cannot be made."""
    folder = home / "venv"
    made = subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True, text=True)
    pip = [folder / "bin/python", "-m", "pip"]
    if made.returncode != 0:  # Debian splits ensurepip off: the system's pip installs into the folder.
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
        pip = [sys.executable, "-m", "pip", "--python", folder / "bin/python"]
    ran = subprocess.run([*pip, "install", "--quiet", "--disable-pip-version-check", *PACKAGES], capture_output=True, text=True)
    lines = ran.stderr.strip().splitlines() or ["pip failed"]
    return folder / "bin/python", None if ran.returncode == 0 else lines[-1]


def archived(llmx, home):
    """The archive of a demo on a nats-server of its own."""
    server = os.environ.get("NATS_SERVER") or run(ROOT / "scripts/nats-server", cwd=ROOT).strip()
    port = free_port()
    arguments = ["-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(home / "nats")]
    process = subprocess.Popen([server, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"nats://127.0.0.1:{port}"
        run(llmx, "demo", "--nats", url, "--agents", "5", "--rate", "20", "--duration", "4", "--json")
        run(llmx, "archive", "--once", "--nats", url, "--to", home / "archive")
    finally:
        process.terminate()
        process.wait()
    return home / "archive"


def killed(llmx, home):
    """Archives of one log: written while its engines are killed in turn, and written behind them."""
    os.environ["LLMX_BIN"] = str(llmx)
    from testbed import Keys, Site

    with contextlib.ExitStack() as stack:
        site = Site(stack, home / "site", Keys(home), engines=3)
        [gateway], nats = site.urls, f"nats://{site.nats}"
        archiver = site.start("archiver", [llmx, "archive", "--nats", nats, "--to", home / "meanwhile"])
        agents = ["--gateway", gateway, "--key", site.keys.signing_key]
        address = site.addresses["contractors"] = f"127.0.0.1:{free_port()}"
        site.ready(site.start("contractors", [llmx, "contractors", "--count", "3", *agents, "--listen", address]))
        traffic = ["traffic", *agents, "--to", "topic://courier", "--rate", RATE, "--duration", DURATION_S, "--json"]
        calling = subprocess.Popen([llmx, *map(str, traffic)], stdout=subprocess.PIPE, text=True)
        for kill in range(KILLS):
            time.sleep(PAUSE_S)
            engine = site.owner() if kill % 2 else site.engines[kill % 3]
            engine.kill()
            site.restart(engine)
        told = json.loads(calling.communicate(timeout=120)[0])
        if calling.returncode:
            sys.exit(f"records: llmx traffic: exit code {calling.returncode}: {told}")
        for service in [*site.engines, archiver]:
            service.end()
        for folder in ("meanwhile", "behind"):
            run(llmx, "archive", "--once", "--nats", nats, "--to", home / folder)
    return home / "meanwhile", home / "behind"


def check(llmx):
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder)
        python, reason = environment(home)
        if reason:
            print(f"NOT RUN: records: {' and '.join(PACKAGES)} cannot be installed: {reason}")
            return
        archive, out = archived(llmx, home), home / "records"
        run(llmx, "keys", "--purpose", "records", "--out", home / "keys")
        arguments = ["--archive", archive, "--record-key", home / "keys/record-key.pem", "--out", out, "--json"]
        exported = json.loads(run(llmx, "award", "export", *arguments))
        states = json.loads(run(python, "-c", STRANGER, home / "keys/record-jwks.json", out))
        if sum(states.values()) != exported["records"] or exported["records"] < RECORDS_MIN:
            sys.exit(f"records: {states} of {exported}")
        record = next(out.glob("*/*.jws"))
        run(llmx, "award", "verify", record, "--jwks", home / "keys/record-jwks.json", "--archive", archive)
        folders = []
        for archive in killed(llmx, home):
            folders.append(home / f"records-{archive.name}")
            run(llmx, "award", "export", "--archive", archive, "--record-key", home / "keys/record-key.pem", "--out", folders[-1])
        one, other = ({path.relative_to(each): path.read_bytes() for path in each.glob("*/*.jws")} for each in folders)
        if one != other or len(one) < RECORDS_MIN:
            sys.exit(f"records: {len(one)} and {len(other)} of archives of one log differ")
        header = json.loads(base64.urlsafe_b64decode(record.read_text().split(".")[0] + "=="))
        print(f"ok: records: {len(one)} the same bytes from archives written while {KILLS} engines were killed and behind them; "
              f"{exported['records']} verify by {' and '.join(PACKAGES)} ({states}), key {header['kid']}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    check(pathlib.Path(sys.argv[1]).resolve())
