"""Build the wheel and install it into this environment: the program `eyas` and the Python package; or build `eyas-lab` beside them.

    .venv/bin/python scripts/wheel.py [--lab]

Uses cargo's own target folder and the release profile, as the tests do, so that what one has
compiled the other does not compile again. `eyas-lab` is for those who work on eyas, and no part of the wheel. The names of
functions, a fifth of the program, lie in `eyas.symbols` beside it: a backtrace of a panic looks for them there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import times
from backend import put_program

ROOT = Path(__file__).resolve().parent.parent


def target_dir() -> Path:
    """Where cargo puts what it builds."""
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")


def build_lab(environment_bin: Path) -> int:
    lab = environment_bin / "eyas-lab"
    command = ["cargo", "build", "--release", "--locked", "-p", "eyas-lab", *times.cargo_options()]
    built = subprocess.run(command, cwd=ROOT, check=False)
    times.keep_cargo_report("make lab", target_dir())
    if built.returncode == 0:
        # A program that runs cannot be overwritten, but replaced.
        shutil.copy(target_dir() / "release" / "eyas-lab", lab.with_suffix(".new"))
        lab.with_suffix(".new").rename(lab)
    return built.returncode


def slim_program(program: Path, symbols: Path) -> None:
    """Move the symbols of a program into the file `symbols`, whose name the program gets."""
    if not shutil.which("objcopy"):
        print("note: objcopy (binutils) is not there, so the program keeps its symbols", file=sys.stderr)
        return
    subprocess.run(["objcopy", "--only-keep-debug", program, symbols], check=True)
    subprocess.run(["objcopy", "--strip-all", f"--add-gnu-debuglink={symbols}", program], check=True)


def portable_bill(bill: bytes) -> bytes:
    """A bill of materials without what differs from build to build of one commit: the folder, the time, a random number."""
    parsed = json.loads(bill.decode().replace(f"path+file://{ROOT}/", "").replace(f"{ROOT}/", ""))
    parsed.pop("serialNumber", None)
    parsed.get("metadata", {}).pop("timestamp", None)
    return json.dumps(parsed, indent=1).encode()


def finish(wheel: Path, built: Path, symbols: Path | None) -> None:
    """Make a wheel of what maturin has built: with the program `built`, without symbols, and with nothing of this machine.

    The symbols go into the file `symbols`; `None`: the program and the module have none any more.
    """
    done = wheel.with_suffix(".done")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(done, "w", zipfile.ZIP_DEFLATED) as new:
        contents = {entry.filename: old.read(entry) for entry in old.infolist()}
        (name,) = [name for name in contents if name.endswith(".data/scripts/eyas")]
        program = wheel.with_name("eyas")
        shutil.copy(built, program)
        if symbols is not None:
            slim_program(program, symbols)
        changed = {name: program.read_bytes()}
        (module,) = [name for name in contents if name.startswith("eyas/_ffi.") and name.endswith(".so")]
        program.write_bytes(contents[module])
        if symbols is not None and shutil.which("strip"):
            subprocess.run(["strip", "--strip-unneeded", program], check=True)
        changed[module] = program.read_bytes()
        program.unlink()
        changed |= {bill: portable_bill(of) for bill, of in contents.items() if "/sboms/" in bill}
        (record,) = [name for name in contents if name.endswith(".dist-info/RECORD")]
        lines = []
        for line in contents[record].decode().splitlines():
            if of := changed.get(line.split(",")[0]):
                digest = base64.urlsafe_b64encode(hashlib.sha256(of).digest()).rstrip(b"=").decode()
                line = f"{line.split(',')[0]},sha256={digest},{len(of)}"
            lines.append(f"{line}\n")
        contents |= changed | {record: "".join(lines).encode()}
        for entry in old.infolist():
            new.writestr(entry, contents[entry.filename])
    done.rename(wheel)


def main() -> int:
    environment_bin = Path(sys.prefix) / "bin"
    if sys.prefix == sys.base_prefix:
        print(
            "error: run this with the Python of a virtual environment, or run `make build`", file=sys.stderr
        )
        return 2
    if sys.argv[1:] == ["--lab"]:
        return build_lab(environment_bin)
    with tempfile.TemporaryDirectory() as folder:
        # The module first, with which cargo compiles nearly all of the program, too.
        put_program(None)
        maturin = [str(environment_bin / "maturin"), "build", "--out", folder]
        cargo = ["cargo", "build", "--release", "--locked", "-p", "eyas-cli"]
        for name, command in (("make build: the package", maturin), ("make build", cargo)):
            built = subprocess.run([*command, *times.cargo_options()], cwd=ROOT, check=False)
            times.keep_cargo_report(name, target_dir())
            if built.returncode != 0:
                return built.returncode
        (wheel,) = Path(folder).glob("eyas-*.whl")
        finish(wheel, target_dir() / "release" / "eyas", environment_bin / "eyas.symbols")
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--force-reinstall",
        ]
        installed = subprocess.run([*pip, wheel], check=False)
        if installed.returncode != 0:
            return installed.returncode
        dist = ROOT / "dist"
        shutil.rmtree(dist, ignore_errors=True)
        dist.mkdir()
        shutil.move(wheel, dist / wheel.name)
    # make compares this time with those of the sources.
    os.utime(environment_bin / "eyas")
    return 0


if __name__ == "__main__":
    sys.exit(main())
