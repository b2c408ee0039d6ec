"""What builds for other machines, and what runs it here: from Debian's archive, unpacked and not installed.

    .venv/bin/python scripts/foreign.py aarch64-unknown-linux-gnu

rustup has Rust's library for other machines (`rustup target add`). Where it cannot be asked, Debian can: it has this library for each
processor that it runs on, its sources, from which cargo makes it for systems with musl, and the compiler that both are for.
`scripts/release.py` uses this by itself. What is downloaded lies in target/foreign/; apt's lists of this machine, and what is installed on
it, stay as they are.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "target" / "foreign"
# What Debian calls processors, and the number of each in the head of a program (ELF).
PROCESSORS = {"x86_64": ("amd64", 62), "aarch64": ("arm64", 183)}
# A C library, and a Python with what its modules need.
SYSTEM = (
    "libc6 libgcc-s1 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib zlib1g libexpat1 libffi8 libssl3 libbz2-1.0"
    " liblzma5 libuuid1"
).split()
# In a namespace of its own, Linux starts programs of another processor by an emulator; `$0` says of which one, and by which. Only what
# runs there has it, and it goes with the last one of these.
REGISTER = """\
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc && printf '%s' "$0" > /proc/sys/fs/binfmt_misc/register || {
    echo "error: Linux 6.7 or newer is needed, which lets users register an emulator for themselves" >&2
    exit 1
}
exec "$@"
"""


def unpacked(folder: Path, packages: list[str], wanted: list[str] | None = None) -> Path:
    """A folder with the newest of these packages in it, such as `libc6:arm64`; it is made once. Of the packages `wanted`, what they
    depend on and this machine has not is there, too.
    """
    if folder.is_dir():
        return folder
    lists = PLACE / "lists"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PLACE) as made:
        archives = Path(made) / "archives"
        (archives / "partial").mkdir(parents=True)
        settings = [f"Dir::State::Lists={lists}", f"Dir::Cache={made}", "Debug::NoLocking=1"]
        settings += [f"APT::Architectures::={processor}" for processor, _ in PROCESSORS.values()]
        settings += ["APT::Sandbox::User=root"]  # the user that root's apt downloads as may not write there
        apt = ["apt-get", "--quiet", *(word for setting in settings for word in ("-o", setting))]
        commands = [[*apt, "update"]]
        if packages:
            commands.append([*apt, "download", *packages])
        if wanted:
            only = ["--download-only", "--reinstall", "--no-install-recommends", "--yes"]
            commands.append([*apt, "install", *only, *wanted])
        for command in commands:
            done = subprocess.run(command, cwd=archives, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise SystemExit(f"error: `{shlex.join(command)}` failed\n{done.stderr.strip()}")
        for package in sorted(archives.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, Path(made) / "unpacked"], check=True)
        (Path(made) / "unpacked").rename(folder)
    return folder


def debian(processor: str | None = None) -> str:
    """What Debian calls a processor; default: this machine's."""
    return PROCESSORS[processor or os.uname().machine][0]


def rust(target: str) -> dict[str, str]:
    """What cargo's environment needs to compile for a target. Errors: SystemExit, Rust's library for it cannot be had."""
    asked = subprocess.run(["rustc", "--print", "sysroot"], stdout=subprocess.PIPE, text=True, check=True)
    if (Path(asked.stdout.strip()) / "lib" / "rustlib" / target / "lib").is_dir():
        return {}
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise SystemExit(
            f"error: Rust's library for {target} is not installed, and this is no Debian, which has it, too\n"
            f"hint: rustup target add {target}"
        )
    print(f"note: Debian's compiler is taken, as this one has no library for {target}", flush=True)
    processor, _, _, libc = target.split("-")
    library = [] if libc == "musl" else [f"libstd-rust-web-dev:{debian(processor)}"]
    sources = ["rust-web-src"] if libc == "musl" else []
    place = unpacked(PLACE / target, library, ["rustc-web", *sources]) / "usr"
    found = {"RUSTC": str(place / "bin" / "rustc")}
    found["LD_LIBRARY_PATH"] = str(place / "lib" / f"{os.uname().machine}-linux-gnu")
    if sources:
        # A compiler makes its own library where it is told that it is one of tomorrow.
        found |= {"RUSTC_BOOTSTRAP": "1", "CARGO_UNSTABLE_BUILD_STD": "std,panic_unwind"}
    return found


def system(processor: str) -> Path:
    """A folder with a C library of a processor, and a Python (`usr/bin/python3.11`)."""
    return unpacked(PLACE / f"system-{processor}", [f"{name}:{debian(processor)}" for name in SYSTEM])


def emulated(processor: str) -> list[str]:
    """What stands before a command so that programs of another processor run: itself, and what it starts."""
    emulator = unpacked(PLACE / "emulator", [f"qemu-user-static:{debian()}"])
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\0" + PROCESSORS[processor][1].to_bytes(2, "little")
    # Not the system that it is for, and programs whose place is fixed are as good as others.
    mask = b"\xff" * 7 + b"\0" + bytes(b"\xff" * 8) + b"\xfe\xff\xff\xff"
    magic, mask_text = ("".join(f"\\x{byte:02x}" for byte in of) for of in (head, mask))
    how = f":{processor}:M::{magic}:{mask_text}:{emulator}/usr/bin/qemu-{processor}-static:F"
    unshared = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", REGISTER, how]
    return ["env", f"QEMU_LD_PREFIX={system(processor)}", *unshared]


if __name__ == "__main__":
    print(rust(sys.argv[1]))
