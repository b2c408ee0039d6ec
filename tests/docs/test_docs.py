"""The documents: links lead somewhere, and the reference of the command line is what the program says, and so are the guides."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from harness import ROOT, need_program, run_guide

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("apps/*/*.md"))]


def anchor(heading: str) -> str:
    """The name that a web view of the page gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def missing_target(page: Path, target: str) -> bool:
    path, _, name = target.partition("#")
    other = page.parent / path if path else page
    if not other.exists():
        return True
    if not name or other.is_dir():
        return False
    text = FENCE.sub("", other.read_text(encoding="utf-8"))
    return name not in {anchor(heading) for heading in HEADING.findall(text)}


def rust_files() -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in ROOT.glob("crates/**/*.rs")]


def names_in_code() -> set[str]:
    code = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in rust_files())
    names = set(re.findall(r"\b(?:fn|struct|enum|trait|type|mod|const|static) (\w+)", code))
    names |= set(re.findall(r"^ +([A-Z]\w+)\b", code, re.MULTILINE))  # variants
    return names | set(re.findall(r"^ +(?:pub )?(\w+): ", code, re.MULTILINE))  # fields


def test_pages_name_what_is_there() -> None:
    """Every file, folder, test, function and type of ours that a page names exists."""
    files, names = rust_files(), names_in_code()
    missing = []
    for page in pages():
        for word in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")):
            if re.fullmatch(r"[\w/]+\.rs", word):
                found = any(path == word or path.endswith("/" + word) for path in files)
            elif re.fullmatch(r"(?:crates|tests|scripts|apps|docs|traces)/[\w/.-]+", word):
                found = (ROOT / word).exists()
            elif re.fullmatch(r"test_\w+\.py", word):
                found = any((ROOT / "tests").glob(f"*/{word}"))
            elif re.fullmatch(r"(?!f64)(?:\w+::)+\w+", word):
                found = word.rpartition("::")[2] in names
            else:
                continue
            if not found:
                missing.append(f"{page.relative_to(ROOT)}: {word}")
    assert not missing


@pytest.mark.parametrize("page", ["architecture", "where-decided"])
def test_the_maps_of_the_code_name_what_is_there(page: str) -> None:
    """Functions by their names alone, and files in drawings."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    files, names = rust_files(), names_in_code()
    words = re.findall(r"`([a-z]+_[a-z_]+)`", text)
    missing = [word for word in words if word not in names]
    # A function by its file: both have to be there. The first part may be a crate.
    stems = {part.removesuffix(".rs") for path in files for part in path.split("/")}
    for word in re.findall(r"`((?:\w+::)+[a-z_]+)`", text):
        *rooms, name = word.split("::")
        if name not in names or any(room.removeprefix("eyas_") not in stems | names for room in rooms):
            missing.append(word)
    # A method by its type: a file has both, an `impl` of the type and the function.
    code = [(ROOT / path).read_text(encoding="utf-8") for path in files]
    for owner, name in set(re.findall(r"`(?:\w+::)*([A-Z]\w+)::([a-z]\w*)`", text)):
        has_type = re.compile(rf"\b(?:impl|trait)\b[^{{;]*\b{owner}\b")
        has_name = re.compile(rf"\bfn {name}\b")
        if not any(has_name.search(one) and has_type.search(one) for one in code):
            missing.append(f"{owner}::{name}")
    drawn = "\n".join(re.findall(r"^```mermaid\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    for crate, rest in re.findall(r"\b(\w+)/([\w/]+\.rs)\b", drawn):
        if not any(path.endswith(f"/{crate}/src/{rest}") for path in files):
            missing.append(f"{crate}/{rest}")
    assert not missing


def test_every_crate_has_its_words_in_the_architecture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    crates = {path.parent.name for path in ROOT.glob("crates/*/*/Cargo.toml")}
    assert crates == set(re.findall(r"^\*\*`crates/\w+/([\w-]+)`\*\*", text, re.MULTILINE))


def test_the_page_of_each_wing_names_its_crates() -> None:
    for wing in sorted((ROOT / "crates").iterdir()):
        text = (wing / "README.md").read_text(encoding="utf-8")
        named = {
            name
            for line in re.findall(r"^- (`.*?):", text, re.MULTILINE)
            for name in re.findall(r"`([\w-]+)`", line)
        }
        assert named == {path.parent.name for path in wing.glob("*/Cargo.toml")}, wing.name


def test_the_drawing_of_the_crates_is_what_the_manifests_say() -> None:
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "crates.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_arrows_between_crates_keep_the_rules_of_the_architecture() -> None:
    manifests = {
        path.parent.name: tomllib.loads(path.read_text(encoding="utf-8")).get("dependencies", {}).keys()
        for path in ROOT.glob("crates/*/*/Cargo.toml")
    }
    uses = {
        name: {other.removeprefix("eyas-") for other in needed if other.startswith("eyas-")}
        for name, needed in manifests.items()
    }
    assert uses["core"] == {"terms", "text"}
    assert uses["terms"] == {"text"}
    assert "core" not in uses["tasklist"] | uses["catalog"] | uses["site"] | uses["access"] | uses["at-data"]
    assert uses["journal"] == uses["text"] == uses["keeping"] == set()
    assert uses["data"] == {"folder"}
    assert uses["config"] == uses["folder"] == {"text"}
    assert uses["runner"] == uses["storage"] == {"folder", "text"}
    assert uses["session"] == {"core", "terms", "text", "wire"}
    assert {name for name, needed in manifests.items() if "tokio" in needed} == {
        "net",
        "client",
        "runtime",
        "cluster",
        "site",
        "cli",
        "py",
        "lab",
        "fuzz",
    }
    assert not {name for name, used in uses.items() if used & {"lab", "fuzz"}}
    assert "clap" not in manifests["cluster"]
    assert not uses["cluster"] & {"cli", "tasklist", "workflow", "storage"}
    assert {name for name, used in uses.items() if "testkit" in used} == {"lab"}
    assert {name for name, used in uses.items() if "papers" in used} == {"lab", "fuzz"}


# Crates whose files make no circle but with the files above them.
WITHOUT_CIRCLES = """
at-data batch catalog client cluster config core data folder fuzz journal lab net report runner runtime session
sim storage tasklist testkit text wire workflow
""".split()


def circles(*crates: str | Path) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "modules.py", *crates]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_no_circle_is_among_the_files_of_the_command_line() -> None:
    done = circles("cli")
    assert done.returncode == 0, done.stdout + done.stderr
    done = circles("--parents-may", *WITHOUT_CIRCLES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_circle_among_files_is_found(tmp_path: Path) -> None:
    """Through a name that is passed on, too; what only tests use makes none."""
    files = {
        "lib.rs": "mod a;\nmod b;\nmod c;\n\npub use c::Passed;\n",
        "a.rs": "use crate::b::{self, B};\n\npub struct A(B);\n\nfn f() {\n    b::g();\n}\n",
        "b.rs": "pub struct B;\n\npub fn g() {\n    crate::Passed::make();\n}\n",
        "c.rs": "pub struct Passed;\n\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert circles(tmp_path).returncode == 0
    (tmp_path / "c.rs").write_text("// crate::b\npub struct Passed(Option<super::a::A>);\n", encoding="utf-8")
    done = circles(tmp_path)
    assert done.returncode == 1
    arrows = ["a --> b", "b --> c", "c --> a"]
    assert done.stdout.splitlines()[1:] == [f"    {arrow}" for arrow in arrows], done.stdout


def all_schemes() -> set[str]:
    """The schemes of all kinds of home that stand in the registry, each as its file says it."""
    storage = ROOT / "crates/homes/storage/src"
    registry = (
        (storage / "kinds.rs").read_text(encoding="utf-8").partition("static KINDS")[2].partition("];")[0]
    )
    schemes: set[str] = set()
    for file in re.findall(r"^    &(\w+)::\w+,$", registry, re.MULTILINE):
        code = (storage / "kinds" / f"{file}.rs").read_text(encoding="utf-8")
        body = code.partition("fn schemes(&self) -> &'static [&'static str] {\n")[2].partition("\n    }\n")[0]
        # A cloud of buckets has a constant.
        body = body or code.partition("const SCHEMES: ")[2].partition(" = ")[2].partition(";\n")[0]
        assert body, f"{file}.rs is in the registry and says no schemes"
        # Some files have a name for theirs.
        constants = dict(re.findall(r'const (\w+): &str = "(\w+)";', code))
        schemes |= set(re.findall(r'"(\w+)"', body))
        schemes |= {constants[name] for name in re.findall(r"\b[A-Z]+\b", body) if name in constants}
    return schemes


URLS_IN_TEXT = Path("crates/base/text/src/urls.rs")


def test_only_home_storage_knows_a_scheme() -> None:
    """A home is added in one file and one line (decision 0034), so no other crate may ask for a scheme by its name."""
    schemes = all_schemes()
    assert {"file", "http", "s3", "dav", "webhdfs"} <= schemes
    # `file` by itself is an ordinary word.
    words, urls = "|".join(schemes - {"file"}), "|".join(schemes)
    named = re.compile(rf'"(?:{words})"|"[^"]*\b(?:{urls})://(?!www\.w3\.org)')
    knows = []
    for path in sorted(ROOT.glob("crates/*/*/src/**/*.rs")):
        name = path.relative_to(ROOT)
        # Tests, and what makes inputs for tests, may name what they like; so may the benchmark that starts servers of homes, and
        # what takes queries out of the URLs in any text.
        may = name.parts[2] in {"storage", "fuzz"} or name.parent.name == "template" or name == URLS_IN_TEXT
        if not may:
            code = path.read_text(encoding="utf-8").partition("#[cfg(test)]\nmod tests")[0]
            lines = [line.strip() for line in code.splitlines()]
            knows += [f"{name}: {line}" for line in lines if not line.startswith("//") and named.search(line)]
    assert not knows


DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
DECISION = re.compile(
    r"# (?P<number>\d{4}): (?P<title>.+)\n\n"
    r"\*\*Status:\*\* (?:accepted|superseded by \[).*\n\n"
    r"\*\*Date:\*\* (?P<date>\d{4}-\d\d-\d\d)\n\n"
    r"## Context\n"
)
PARTS = ["## Context", "## Decision", "### Alternatives", "## Consequences", "### What would change our mind"]


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_the_form_of_all(page: Path) -> None:
    """The form is said in docs/decisions/README.md."""
    text = page.read_text(encoding="utf-8")
    head = DECISION.match(text)
    assert head, "title, status, date and context are not as docs/decisions/README.md says"
    assert head["number"] == page.name[:4]
    assert re.findall(r"^##+ .+$", FENCE.sub("", text), re.MULTILINE) == PARTS
    long = [line for line in text.splitlines() if len(line) > 100 and not line.startswith("|")]
    assert not long
    assert (
        listed_decisions().count(f"| [{head['number']}]({page.name}) | {head['title']} | {head['date']} |")
        == 1
    )


def listed_decisions() -> list[str]:
    text = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^\| \[\d.*$", text, re.MULTILINE)


def test_every_decision_is_listed_once_below_its_subject() -> None:
    text = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    _, *subjects, _ = re.split(r"^## .*$", text, flags=re.MULTILINE)
    listed = [re.findall(r"^\| \[(\d+)\]", subject, re.MULTILINE) for subject in subjects]
    assert all(numbers and numbers == sorted(numbers) for numbers in listed)
    assert len(listed_decisions()) == sum(map(len, listed))
    assert sorted(number for numbers in listed for number in numbers) == [page.name[:4] for page in DECISIONS]


def variants(enum: str, path: str) -> set[str]:
    """The variants of an enum, as they are written in logs."""
    code = (ROOT / "crates" / path).read_text(encoding="utf-8")
    body = code.partition(f"pub enum {enum} {{\n")[2].partition("\n}\n")[0]
    found = re.findall(r"^    ([A-Z]\w+)", body, re.MULTILINE)
    assert found
    return {re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower() for name in found}


def test_the_page_of_the_event_log_has_every_name() -> None:
    text = (ROOT / "docs" / "reference" / "event-log.md").read_text(encoding="utf-8")
    table = {
        name
        for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    for enum in ("Event", "Action"):
        assert variants(enum, "engine/core/src/event.rs") - table == set()
    quoted = set(re.findall(r'`"?(\w+)"?`', text))
    assert variants("FailureKind", "base/terms/src/types.rs") - quoted == set()


def test_relative_links_lead_somewhere() -> None:
    broken = []
    for page in pages():
        for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            if not re.match(r"[a-z]+:", target) and missing_target(page, target):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken


def test_the_command_line_reference_is_what_the_program_says(eyas_path: Path) -> None:
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "docs.py", "--check", "--eyas", eyas_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_what_a_guide_shows_is_what_is_printed(page: Path, eyas_path: Path) -> None:
    """Every command of the page is run; numbers that vary are not compared (scripts/docs.py says which)."""
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "docs.py", "--run", page]
    done = subprocess.run(
        [*command, "--eyas", eyas_path], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("tool", ["parallel", "dask"])
def test_what_a_guide_shows_of_another_tool_is_what_that_prints(tool: str, eyas_path: Path) -> None:
    """Snakemake's page is run by hand: `scripts/docs.py --run PAGE --with snakemake`."""
    if tool == "parallel":
        need_program("parallel")
    page = ROOT / "docs" / "guides" / {"parallel": "from-gnu-parallel.md", "dask": "from-dask.md"}[tool]
    environment = {**os.environ, "PATH": f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"}
    done = run_guide(page, tool, eyas_path, environment)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ("```console\n$ echo a b\na b\n```\n", None),
        ("```console\n$ echo a b\na c\n```\n", "+a b"),
        ("```console\n$ printf 'a 1.5 s\\nb\\nc'\na 20 ms\n...\n```\n", None),
        ("```console\n$ echo 3 tasks\n4 tasks\n```\n", "+3 tasks"),
        ("<!-- numbers vary -->\n```console\n$ echo 3 tasks\n4 tasks\n```\n", None),
        ("```text\nwords\n```\n", "does not say what prints it"),
        ("<!-- prints: echo words -->\n```text\nwords\n```\n", None),
        (
            "<!-- file f -->\n```json\n{}\n```\n\n```console\n$ cat f\n{}\n$ false\n$ echo $?\n1\n```\n",
            "it ended with 1",
        ),
        ("<!-- not run: a reason -->\n```console\n$ echo a\nb\n```\n", None),
    ],
)
def test_a_page_that_is_not_true_is_found(
    shown: str, why: str | None, eyas_path: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n{shown}", encoding="utf-8")
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "docs.py", "--run", page]
    done = subprocess.run(
        [*command, "--eyas", eyas_path], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode == 0) == (why is None), done.stdout + done.stderr
    assert why is None or why in done.stderr


def test_the_terms_of_the_papers_are_commands_that_there_are() -> None:
    """Each command of the page has a page in the reference, or a heading on one, and so has each of its options."""
    text = (ROOT / "docs" / "reference" / "terms-of-the-papers.md").read_text(encoding="utf-8")
    reference = ROOT / "docs" / "reference"
    pages_of = {path.stem: path.read_text(encoding="utf-8") for path in (reference / "cli").glob("*.md")}
    lab = (reference / "lab.md").read_text(encoding="utf-8")
    options = set(re.findall(r"--[a-z][a-z-]+", "\n".join([*pages_of.values(), lab])))
    missing = []
    for words in re.findall(r"`((?:eyas(?:-lab)? |--)[^`]+)`", text):
        program, *rest = words.split(" -- ")[0].split()
        names = [word for word in rest if re.fullmatch(r"[a-z][a-z-]+", word)]
        if program == "eyas-lab":
            found = f"eyas-lab {names[0]}" in lab
        elif program == "eyas":
            page = pages_of.get(names[0], "")
            inner = re.findall(r"^##+ eyas [a-z-]+ ([a-z-]+)$", page, re.MULTILINE)
            found = bool(page) and (not inner or len(names) == 1 or names[1] in inner)
        else:
            found = True
        if not found or not set(re.findall(r"--[a-z][a-z-]+", words.split(" -- ")[0])) <= options:
            missing.append(words)
    assert not missing


# Words that say nothing of what a type is of. `HomePlace` and `FoundKey` do.
WITHOUT_SUBJECT = "Place Node Found Seen Reader Work Held Said Taken Made Given Kept".split()


def test_names_of_types_have_a_subject() -> None:
    """Tests may name their types as they like."""
    declared = re.compile(
        rf"^ *(?:pub(?:\([\w: ]+\))? )?(?:struct|enum|trait|type) ({'|'.join(WITHOUT_SUBJECT)})\b",
        re.MULTILINE,
    )
    found = []
    for path in sorted(ROOT.glob("crates/*/*/src/**/*.rs")):
        code = path.read_text(encoding="utf-8").partition("#[cfg(test)]\nmod tests")[0]
        if path.name != "tests.rs" and "tests" not in path.parts:
            found += [f"{path.relative_to(ROOT)}: {name}" for name in declared.findall(code)]
    assert not found
