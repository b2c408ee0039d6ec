"""Build what is given to others, and check that it runs where they are.

    .venv/bin/python scripts/release.py [--wheel] [--arch aarch64] [--libc musl]

Leaves in dist/release/ a wheel for Linux with glibc 2.28 or newer (manylinux_2_28), the program alone as a static
binary that needs no C library (musl), both stripped, and the source distribution. The binaries are linked by zig, so that
the machine's own glibc does not matter. With --wheel only the wheel is made, also for other machines: --arch names the
processor, and --libc musl makes it for systems without glibc (musllinux_1_2). What is for another machine is run by an emulator.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import foreign
from backend import put_program
from wheel import finish, target_dir

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "dist" / "release"
GLIBC_MAX = (2, 28)
HERE = platform.machine()
# For which Linux a wheel is, by the C library there; and how readelf calls a processor.
COMPATIBILITIES = {"gnu": "manylinux_2_28", "musl": "musllinux_1_2"}
MACHINES = {"x86_64": "X86-64", "aarch64": "AArch64"}


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """Runs a command that has to end well; its standard output."""
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: `{' '.join(map(str, command))}` ended with exit status {done.returncode}")
    return done.stdout


def glibc_wanted(binary: Path) -> list[tuple[int, int]]:
    """The versions of glibc's symbols that a program cannot do without, newest first.

    A weak symbol is looked up when the program starts and may be absent.
    """
    wanted = set()
    for line in run("readelf", "--dyn-syms", "--wide", binary).splitlines():
        found = re.search(r" UND .*@GLIBC_(\d+)\.(\d+)", line)
        if found and " WEAK " not in line:
            wanted.add((int(found[1]), int(found[2])))
    return sorted(wanted, reverse=True)


def check(condition: bool, what: str) -> None:
    if not condition:
        raise SystemExit(f"error: {what}")
    print(f"ok: {what}")


def works(binary: Path, processor: str) -> None:
    """Runs a small job with it."""
    emulator = [] if processor == HERE else foreign.emulated(processor)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "in"
        data.mkdir()
        for i in range(3):
            (data / f"{i}.txt").write_text("a\n" * i)
        out = Path(folder) / "out"
        places = [f"{data}/*.txt", "--dir", f"{folder}/run", "--out", f"{out}/{{stem}}.n"]
        run(*emulator, binary, "map", *places, "--shell", "--", "wc -l < {in} > {out}")
        found = [(out / f"{i}.n").read_text().strip() for i in range(3)]
        check(found == ["0", "1", "2"], f"{binary.name} maps a program over files")


def program(target: str, env: dict[str, str]) -> Path:
    """The program for a target, built: with musl, it is without a C library."""
    zig_target = target if target.endswith("musl") else f"{target}.{'.'.join(map(str, GLIBC_MAX))}"
    run("cargo", "zigbuild", "--release", "--locked", "-p", "eyas-cli", "--target", zig_target, env=env)
    return target_dir() / target / "release" / "eyas"


def check_wheel(wheel: Path, target: str) -> None:
    processor, _, _, libc = target.split("-")
    check(f"{COMPATIBILITIES[libc]}_{processor}" in wheel.name, f"{wheel.name} says what it is for")
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as files:
            (inside,) = [name for name in files.namelist() if name.endswith(".data/scripts/eyas")]
            (module,) = [name for name in files.namelist() if name.endswith("/_ffi.abi3.so")]
            binaries = [Path(files.extract(name, folder)) for name in (inside, module)]
        for binary in binaries:
            check(MACHINES[processor] in run("readelf", "-h", binary), f"{binary.name} is for {processor}")
            check(".symtab" not in run("readelf", "-SW", binary), "it is stripped")
            if libc == "gnu":
                wanted = glibc_wanted(binary)
                check(
                    bool(wanted) and wanted[0] <= GLIBC_MAX,
                    f"it needs glibc {wanted[0]}, at most {GLIBC_MAX}",
                )
        binaries[0].chmod(0o755)
        if libc == "musl":
            check("INTERP" not in run("readelf", "-lW", binaries[0]), f"{binaries[0].name} is static")
            needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", binaries[1])))
            check(needed <= {"libc.so"}, f"{binaries[1].name} needs no library but musl")
        works(binaries[0], processor)


def make_wheel(target: str, env: dict[str, str]) -> Path:
    """The wheel for a target. The program in it is the one of [`program`]."""
    processor, _, _, libc = target.split("-")
    put_program(None)
    words: list[str | Path] = [
        "--zig",
        "--compatibility",
        COMPATIBILITIES[libc],
        "--target",
        target,
        "--out",
        OUT,
    ]
    # A module finds musl in the Python that loads it.
    of_module = {"RUSTFLAGS": "-C target-feature=-crt-static"} if libc == "musl" else {}
    run(Path(sys.prefix) / "bin" / "maturin", "build", *words, env=env | of_module)
    (wheel,) = OUT.glob("*.whl")
    # binutils are for the processor that they run on: the linker has removed the names where it is another one.
    symbols = OUT / "eyas.symbols" if processor == HERE else None
    finish(wheel, program(target, env), symbols)
    check_wheel(wheel, target)
    return wheel


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheel", action="store_true", help="make and check only the wheel")
    parser.add_argument("--arch", choices=foreign.PROCESSORS, default=HERE, help="the processor of the wheel")
    parser.add_argument("--libc", choices=COMPATIBILITIES, default="gnu", help="the C library of the wheel")
    options = parser.parse_args()
    target = f"{options.arch}-unknown-linux-{options.libc}"
    if not options.wheel and target != f"{HERE}-unknown-linux-gnu":
        parser.error("--arch and --libc are for --wheel: the rest is for this machine")
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)

    tools = Path(sys.prefix) / "bin"
    # cargo finds its subcommands, and these find their zig, in this environment.
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    if options.arch != HERE:
        env["CARGO_PROFILE_RELEASE_STRIP"] = "symbols"
    make_wheel(target, env | foreign.rust(target))
    if not options.wheel:
        run(tools / "maturin", "sdist", "--out", OUT, env=env)
        (source,) = OUT.glob("*.tar.gz")
        version = source.name.removeprefix("eyas-").removesuffix(".tar.gz")
        static = OUT / f"eyas-{version}-linux-{HERE}"
        target = f"{HERE}-unknown-linux-musl"
        shutil.copy2(program(target, env | foreign.rust(target)), static)
        run("strip", static)
        check("INTERP" not in run("readelf", "-lW", static), f"{static.name} is static")
        works(static, HERE)
    for made in sorted(OUT.iterdir()):
        print(f"{made.stat().st_size / 1e6:8.1f} MB  {made.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
