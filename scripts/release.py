"""Build what is given to others, and check that it runs where they are.

    .venv/bin/python scripts/release.py [--wheel]

Leaves in dist/release/ a wheel for Linux with glibc 2.28 or newer (manylinux_2_28), the program alone as a static
binary that needs no C library (musl), both stripped, and the source distribution. The binaries are linked by zig, so that
the machine's own glibc does not matter. With --wheel only the wheel is made.
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

from backend import put_program
from wheel import finish

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "dist" / "release"
GLIBC_MAX = (2, 28)


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """Runs a command that has to end well; its standard output."""
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: `{' '.join(map(str, command))}` ended with exit status {done.returncode}")
    return done.stdout


def glibc_wanted(binary: Path) -> list[tuple[int, int]]:
    """The versions of glibc's symbols that a program cannot do without, newest first.

    A weak symbol is looked up when the program starts and may be absent; the linker marks it with a `w`.
    """
    wanted = set()
    for line in run("objdump", "-T", binary).splitlines():
        found = re.search(r"GLIBC_(\d+)\.(\d+)", line)
        if found and not re.search(r"^\S+\s+w\s", line):
            wanted.add((int(found[1]), int(found[2])))
    return sorted(wanted, reverse=True)


def check(condition: bool, what: str) -> None:
    if not condition:
        raise SystemExit(f"error: {what}")
    print(f"ok: {what}")


def works(binary: Path) -> None:
    """Runs a small job with it."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "in"
        data.mkdir()
        for i in range(3):
            (data / f"{i}.txt").write_text("a\n" * i)
        out = Path(folder) / "out"
        places = [f"{data}/*.txt", "--dir", f"{folder}/run", "--out", f"{out}/{{stem}}.n"]
        run(binary, "map", *places, "--shell", "--", "wc -l < {in} > {out}")
        found = [(out / f"{i}.n").read_text().strip() for i in range(3)]
        check(found == ["0", "1", "2"], f"{binary.name} maps a program over files")


def static_program(env: dict[str, str]) -> Path:
    """The program without a C library, in `target/`."""
    target = f"{platform.machine()}-unknown-linux-musl"
    sysroot = Path(run("rustc", "--print", "sysroot").strip())
    if not (sysroot / "lib" / "rustlib" / target).is_dir():
        hint = f"hint: rustup target add {target}"
        raise SystemExit(f"error: Rust's library for {target} is not installed\n{hint}")
    run("cargo", "zigbuild", "--release", "--locked", "-p", "eyas-cli", "--target", target, env=env)
    return ROOT / "target" / target / "release" / "eyas"


def check_wheel(wheel: Path) -> None:
    check("manylinux_2_28" in wheel.name, f"{wheel.name} is for glibc 2.28")
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as files:
            (inside,) = [name for name in files.namelist() if name.endswith(".data/scripts/eyas")]
            program = Path(files.extract(inside, folder))
        program.chmod(0o755)
        wanted = glibc_wanted(program)
        check(
            bool(wanted) and wanted[0] <= GLIBC_MAX,
            f"its program needs glibc {wanted[0]}, at most {GLIBC_MAX}",
        )
        names = subprocess.run(["nm", program], capture_output=True, text=True, check=False)
        check("no symbols" in names.stderr, "it is stripped")
        works(program)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheel", action="store_true", help="make and check only the wheel")
    options = parser.parse_args()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)

    tools = Path(sys.prefix) / "bin"
    # cargo finds its subcommands, and these find their zig, in this environment.
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    target = f"{platform.machine()}-unknown-linux-gnu"
    wheel_options = ["--zig", "--compatibility", "manylinux_2_28", "--target", target]
    put_program(None)
    run(tools / "maturin", "build", *wheel_options, "--out", OUT, env=env)
    program = [
        "--release",
        "--locked",
        "-p",
        "eyas-cli",
        "--target",
        f"{target}.{'.'.join(map(str, GLIBC_MAX))}",
    ]
    run("cargo", "zigbuild", *program, env=env)
    (wheel,) = OUT.glob("*.whl")
    finish(wheel, ROOT / "target" / target / "release" / "eyas", OUT / "eyas.symbols")
    check_wheel(wheel)
    if not options.wheel:
        run(tools / "maturin", "sdist", "--out", OUT, env=env)
        (source,) = OUT.glob("*.tar.gz")
        version = source.name.removeprefix("eyas-").removesuffix(".tar.gz")
        static = OUT / f"eyas-{version}-linux-{platform.machine()}"
        shutil.copy2(static_program(env), static)
        run("strip", static)
        check("INTERP" not in run("readelf", "-lW", static), f"{static.name} is static")
        works(static)
    for made in sorted(OUT.iterdir()):
        print(f"{made.stat().st_size / 1e6:8.1f} MB  {made.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
