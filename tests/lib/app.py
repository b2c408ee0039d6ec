"""The applications under apps/ for tests: their programs are run as a user runs them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness import ROOT, Eyas, Finished

Json = Any


class App:
    """One application in a folder of the test's own: `data` is made once, each run has its own results."""

    def __init__(self, name: str, eyas: Eyas, folder: Path) -> None:
        self.home = ROOT / "apps" / name
        self.eyas = eyas
        self.folder = folder
        self.data = folder / "data"
        self.plain = folder / "plain"

    def program(self, name: str, *options: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
        """Run one of the application's programs, which has to end with this exit status."""
        interpreter = sys.executable if name.endswith(".py") else "sh"
        command = [interpreter, str(self.home / name), *map(str, options)]
        env = {**self.eyas.env, "PYTHON": sys.executable}
        done = subprocess.run(
            command, env=env, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == status, f"{command}\n{done.stdout}\n{done.stderr}"
        return done

    def plan(self, name: str, *options: str | Path) -> Path:
        """The task list of a run of that name."""
        tasks = self.folder / f"{name}.jsonl"
        places: list[str | Path] = ["--data", self.data, "--results", self.folder / name, "--out", tasks]
        self.program("plan.py", *places, "--python", sys.executable, *options)
        return tasks

    def run(self, name: str, workflow: Path, *options: str, cwd: Path | None = None) -> Finished:
        """Run a workflow on two nodes; its state is kept in `run-NAME`."""
        nodes = ["--nodes", "2", "--slots", "1"]
        return self.eyas.run("run", workflow, "--dir", self.folder / f"run-{name}", *nodes, *options, cwd=cwd)

    def swift(self, script: str, *arguments: str) -> Finished:
        """Run the application's Swift script in a copy of its folder, `swift`."""
        copy = self.folder / "swift"
        shutil.copytree(self.home, copy)
        (copy / "data").symlink_to(self.data)
        return self.run("swift", Path(script), "--", *arguments, cwd=copy)

    def report(self, name: str) -> Json:
        out = self.folder / f"{name}.html"
        self.eyas.run("report", "--dir", self.folder / f"run-{name}", "--out", out)
        return json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))

    def checked(self, name: str, *options: str | Path) -> Json:
        """What check.py found in the results of a run, which has to be good."""
        return json.loads(self.program("check.py", "--results", self.folder / name, *options).stdout)

    def refused(self, name: str, *options: str | Path) -> str:
        """What check.py says on results that are not good."""
        return self.program("check.py", "--results", self.folder / name, *options, status=1).stderr


def size_of(folder: Path) -> int:
    """Bytes of all files directly in a folder."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
