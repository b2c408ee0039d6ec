"""What runs on a node of a Ray cluster: an actor that starts one executor there, watches it and ends with it.

The class is sent to the node by value, so the node needs Ray and nothing of eyas: only the standard library and Ray are imported
here. The program `eyas` is used under its path where the node has the very same file there, and is else fetched
from Ray's object store.

The executor reads its standard input, and ends when that closes. So it does not outlive the actor, however that ends.
"""

from __future__ import annotations

import collections
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

# Of what the executor prints, so many lines are kept.
LINES_MAX = 200
# How long an actor whose executor has ended waits to be asked why, in seconds.
LINGER_S = 10.0


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Program:
    """The program `eyas` on this node. `spec`: path, size and digest of the original; `refs`: its content, in a list so that
    it is fetched only where it is needed."""

    def __init__(self, spec: dict[str, Any], refs: list[Any]) -> None:
        self._lock: int | None = None
        self.path = Path(spec["path"])
        if not self._is_same(spec):
            self._fetch(spec["digest"], refs)

    def _is_same(self, spec: dict[str, Any]) -> bool:
        try:
            if self.path.stat().st_size != spec["size"] or not os.access(self.path, os.X_OK):
                return False
            return digest_of(self.path.read_bytes()) == str(spec["digest"])
        except OSError:
            return False

    def _fetch(self, digest: str, refs: list[Any]) -> None:
        """Puts the program into a folder of this user, which all actors of the node share: whoever uses it holds a lock."""
        import ray

        common = Path(tempfile.gettempdir()) / f"eyas-ray-{os.getuid()}"
        common.mkdir(mode=0o700, exist_ok=True)
        if common.stat().st_uid != os.getuid():
            raise RuntimeError(f"{common} belongs to another user")
        for other in common.iterdir():
            if other.name != digest:
                _remove_unused(other)
        self.path = common / digest / "eyas"
        for _ in range(20):
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            if not self.path.exists():
                content: Any = ray.get(refs[0])
                if digest_of(content) != digest:
                    raise RuntimeError("Ray's object store gave another program than was put into it")
                handle, part = tempfile.mkstemp(dir=self.path.parent)
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                os.chmod(part, 0o700)
                os.rename(part, self.path)
            try:
                lock = os.open(self.path, os.O_RDONLY)
                fcntl.flock(lock, fcntl.LOCK_SH)
                # The last user of the file may have removed it in this moment.
                if os.stat(self.path).st_ino == os.fstat(lock).st_ino:
                    self._lock = lock
                    return
                os.close(lock)
            except FileNotFoundError:
                pass
        raise RuntimeError(f"{self.path} is removed again and again")

    def release(self) -> None:
        """Nobody starts it any more; it is removed with its last user."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
            _remove_unused(self.path.parent)


def _remove_unused(folder: Path) -> None:
    try:
        lock = os.open(folder / "eyas", os.O_RDONLY)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.rmdir()
    except OSError:
        pass
    finally:
        os.close(lock)


class Node:
    """The actor. `spec` has

    key : the text of the join file.
    script : lines for the shell that become the executor; they find its program in EYAS_PROGRAM.
    args : further arguments of the executor.
    program : see Program.
    """

    def __init__(self, spec: dict[str, Any], refs: list[Any]) -> None:
        import ray

        self._me = ray.get_runtime_context().current_actor
        self._key = spec["key"]
        self._lines: collections.deque[str] = collections.deque(maxlen=LINES_MAX)
        self._code: int | None = None
        self._is_asked_to_end = False
        self._is_told = threading.Event()
        self._program = Program(spec["program"], refs)
        # Ray's own variables are about this actor. It also sets the number of threads, which is the programs' business.
        env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        if env.get("OMP_NUM_THREADS") == str(int(spec["cpus"])):
            del env["OMP_NUM_THREADS"]
        env["EYAS_PROGRAM"] = str(self._program.path)
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", spec["script"], "sh", *spec["args"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=env,
            start_new_session=True,
        )
        try:
            assert self._process.stdin
            self._process.stdin.write(self._key.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # It has ended, and its output says why.
        threading.Thread(target=self._follow, daemon=True).start()

    def status(self) -> dict[str, Any]:
        """How the executor ended, None while it runs, and the last lines that it printed."""
        code = self._code
        if code is not None:
            self._is_told.set()
        return {"code": code, "lines": list(self._lines)}

    def set_key(self, key: str) -> None:
        """The dispatcher was started again, perhaps at another address: the executor looks into its folder for it."""
        if key == self._key:
            return
        self._key = key
        # The executor has chosen its folder itself; it holds the lock of the cache in it.
        for descriptor in Path(f"/proc/{self._process.pid}/fd").iterdir():
            try:
                lock = Path(os.readlink(descriptor))
            except OSError:
                continue
            path = lock.parent.parent / "join.json"
            if lock.name == "lock" and lock.parent.name == "cache" and path.exists():
                part = path.with_suffix(".part")
                part.touch(mode=0o600)
                part.write_text(key + "\n")
                part.rename(path)

    def end(self) -> None:
        """Has the executor end in order; the actor ends with it."""
        self._is_asked_to_end = True
        self._is_told.set()
        if self._code is None:
            self._process.send_signal(signal.SIGTERM)

    def _follow(self) -> None:
        import ray

        assert self._process.stdout
        for line in self._process.stdout:
            text = line.decode(errors="replace").rstrip("\n")
            self._lines.append(text)
            print(text, flush=True)  # into Ray's log of this actor
        self._code = self._process.wait()
        self._program.release()
        self._is_told.wait(LINGER_S)
        if not self._is_asked_to_end:
            time.sleep(0.2)  # The answer is on its way.
        # Ray would start an actor again whose process merely ended.
        ray.kill(self._me, no_restart=True)
