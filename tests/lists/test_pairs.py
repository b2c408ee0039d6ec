"""`eyas pairs` with real processes: the matrix is that of a plain double loop, whatever happens to single pairs."""

from __future__ import annotations

import csv
import itertools
import json
import math
import struct
from pathlib import Path

import pytest
from harness import Run

# The number of a pair depends on both files and on their order.
COMPARE = """
import pathlib, sys
a, b = (pathlib.Path(path).read_text().split() for path in sys.argv[1:3])
print("compared", sys.argv[1], sys.argv[2])
print("value =", len(set(a) & set(b)) + len(a) / 1000)
"""


def words(n: int) -> list[str]:
    return [f"w{k}" for k in range(0, 40, n % 5 + 1)] + [f"own{n}"] * n


def make_sets(folder: Path, n_a: int = 7, n_b: int = 5) -> None:
    for name, n in (("a", n_a), ("b", n_b)):
        (folder / name).mkdir()
        for k in range(n):
            (folder / name / f"{k}.txt").write_text(" ".join(words(k + len(name) * 3)))
    (folder / "compare.py").write_text(COMPARE)


def value(a: Path, b: Path) -> float:
    left, right = a.read_text().split(), b.read_text().split()
    return len(set(left) & set(right)) + len(left) / 1000


def files(folder: Path, name: str) -> list[Path]:
    return sorted((folder / name).iterdir(), key=lambda path: path.name)


def double_loop(a: list[Path], b: list[Path]) -> list[list[float]]:
    return [[value(left, right) for right in b] for left in a]


def read_csv(path: Path) -> tuple[list[str], list[str], list[list[str]]]:
    """Names of columns, names of rows, cells."""
    with path.open(newline="") as file:
        head, *rows = csv.reader(file)
    return head[1:], [row[0] for row in rows], [row[1:] for row in rows]


def numbers(cells: list[list[str]]) -> list[list[float]]:
    return [[float(cell) for cell in row] for row in cells]


def test_the_matrix_is_that_of_a_double_loop(run: Run, tmp_path: Path) -> None:
    make_sets(tmp_path)
    command = ["--", "python3", "compare.py", "{a}", "{b}"]
    done = run("pairs", "a/*.txt", "b", "--out", "m.csv", "--nodes", "2", "--slots", "1", *command)
    columns, rows, cells = read_csv(tmp_path / "m.csv")
    assert columns == [f"b/{k}.txt" for k in range(5)]
    assert rows == [f"a/{k}.txt" for k in range(7)]
    assert numbers(cells) == double_loop(files(tmp_path, "a"), files(tmp_path, "b"))
    assert "5 matrix in" in done.stderr and "all 35 cells have a value" in done.stderr
    # Nothing is left beside the matrix.
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("m.")) == ["m.csv"]


def test_a_numpy_file_in_tiles_of_a_given_size(run: Run, tmp_path: Path) -> None:
    make_sets(tmp_path)
    (tmp_path / "list").write_text("".join(f"a/{k}.txt\n" for k in range(7)))
    command = ["--", "python3", "compare.py", "{a}", "{b}"]
    done = run("pairs", "@list", "b/*.txt", "--out", "m.npy", "--chunk", "3", "--json", *command)
    assert json.loads(done.stdout)["n_tasks"] == 6
    data = (tmp_path / "m.npy").read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00"
    (length,) = struct.unpack("<H", data[8:10])
    head = eval(data[10 : 10 + length])
    assert head == {"descr": "<f8", "fortran_order": False, "shape": (7, 5)}
    cells = struct.unpack("<35d", data[10 + length :])
    expected = double_loop(files(tmp_path, "a"), files(tmp_path, "b"))
    assert list(cells) == list(itertools.chain(*expected))


def test_pairs_machines_and_places_by_a_file(run: Run, tmp_path: Path) -> None:
    make_sets(tmp_path)
    # The same names with other bytes: what is read from there gives other numbers.
    (tmp_path / "site").mkdir()
    for k, file in enumerate(files(tmp_path, "a")):
        (tmp_path / "site" / f"{k}.txt").write_bytes(file.read_bytes()[:1])
    assignments = [
        {"rows": ["a/0.txt", "a/2.txt"], "columns": ["b/1.txt", "b/4.txt"], "resource": "one"},
        {"pairs": [["a/1.txt", "b/0.txt"], ["a/6.txt", "b/3.txt"]], "from": "site", "resource": "one"},
    ]
    (tmp_path / "assign.json").write_text(json.dumps({"assignments": assignments}))
    options = ["--assign", "assign.json", "--nodes", "2", "--slots", "1", "--resource", "one=1"]
    command = ["--", "python3", "compare.py", "{a}", "{b}"]
    done = run("pairs", "a/*.txt", "b/*.txt", "--out", "m.csv", *options, *command)
    assert "6 pairs in 2 tiles" in done.stderr and "all 6 pairs that are assigned have a value" in done.stderr
    cells = read_csv(tmp_path / "m.csv")[2]
    expected = double_loop(files(tmp_path, "a"), files(tmp_path, "b"))
    site = [tmp_path / "site" / f"{k}.txt" for k in range(7)]
    there = double_loop(site, site)
    has = {(i, j) for i in range(7) for j in range(5) if cells[i][j] != ""}
    assert has == {(0, 1), (0, 4), (2, 1), (2, 4), (1, 0), (6, 3)}
    assert all(float(cells[i][j]) == expected[i][j] for i, j in [(0, 1), (0, 4), (2, 1), (2, 4)])
    assert all(float(cells[i][j]) == there[i][j] for i, j in [(1, 0), (6, 3)])
    # A pair in two assignments, and a name that no set has.
    for changed, words in (
        ({"pairs": [["a/0.txt", "b/1.txt"]]}, "is in assignment 1 and in assignment 3"),
        ({"pairs": [["a/9.txt", "b/1.txt"]]}, "assignment 3 names `a/9.txt`, which is no row of the matrix"),
    ):
        (tmp_path / "assign.json").write_text(json.dumps({"assignments": [*assignments, changed]}))
        failed = run("pairs", "a/*.txt", "b/*.txt", "--out", "m.csv", *options, *command, status=2)
        assert words in failed.stderr, failed.stderr


def test_one_set_with_itself_and_its_half(run: Run, tmp_path: Path) -> None:
    make_sets(tmp_path)
    command = ["--", "python3", "compare.py", "{a}", "{b}"]
    options = ["--self", "--nodes", "2", "--slots", "1", "--pair-time", "1s"]
    run("pairs", "a/*.txt", "--out", "own.csv", *options, *command)
    a = files(tmp_path, "a")
    own = double_loop(a, a)
    assert numbers(read_csv(tmp_path / "own.csv")[2]) == own
    # Each pair in one order, and its value in both places.
    line = "python3 compare.py {a} {b}; echo {a} {b} >&2"
    run("pairs", "a/*.txt", "--out", "half.csv", *options, "--symmetric", "--shell", "--", line)
    half = numbers(read_csv(tmp_path / "half.csv")[2])
    for i, j in itertools.product(range(7), range(7)):
        assert half[i][j] == own[min(i, j)][max(i, j)]


FAILS = (
    COMPARE
    + """
if "own4" in a and "own6" in b:
    sys.exit("these two cannot be compared")
if "own5" in a and "own7" in b:
    print("no value")
if "own3" in a and "own7" in b:
    print("nan")
"""
)


def test_a_pair_that_fails_costs_its_own_cell(run: Run, tmp_path: Path) -> None:
    make_sets(tmp_path)
    (tmp_path / "compare.py").write_text(FAILS)
    command = ["--", "python3", "compare.py", "{a}", "{b}"]
    arguments = ["pairs", "a/*.txt", "b/*.txt", "--out", "m.csv", "--slots", "2"]
    done = run(*arguments, *command, status=1)
    assert "2 pairs have no value" not in done.stderr and "1 pair has no value" in done.stderr
    assert "`a/1.txt` and `b/3.txt`" in done.stderr
    assert "the program ended with exit status 1: these two cannot be compared" in done.stderr
    cells = read_csv(tmp_path / "m.csv")[2]
    empty = [(i, j) for i, row in enumerate(cells) for j, cell in enumerate(row) if cell == ""]
    assert empty == [(1, 3)]
    assert math.isnan(float(cells[0][4]))

    # The tile with the failed pair is computed again, and only that one.
    (tmp_path / "a" / "1.txt").write_text("w1")
    done = run(*arguments, "--resume", *command)
    assert "up to date" in done.stderr
    assert float(read_csv(tmp_path / "m.csv")[2][1][3]) == value(tmp_path / "a/1.txt", tmp_path / "b/3.txt")

    # With --strict the task fails, and all cells of its tile with it.
    (tmp_path / "a" / "1.txt").write_text(" ".join(words(4)))
    done = run(*arguments, "--strict", "--chunk", "2", *command, status=1)
    assert "all 4 pairs of task tile-1" in done.stderr
    cells = read_csv(tmp_path / "m.csv")[2]
    empty = [(i, j) for i, row in enumerate(cells) for j, cell in enumerate(row) if cell == ""]
    assert empty == [(0, 2), (0, 3), (1, 2), (1, 3)]


def test_a_later_run_computes_only_what_has_changed(run: Run, tmp_path: Path) -> None:
    make_sets(tmp_path)
    command = ["--", "python3", "compare.py", "{a}", "{b}"]
    arguments = ["pairs", "a/*.txt", "b/*.txt", "--out", "m.csv", "--chunk", "1", "--keep-tiles"]
    run(*arguments, *command)
    done = run(*arguments, "--resume", *command)
    assert "all 35 tasks are up to date" in done.stderr
    (tmp_path / "a" / "2.txt").write_text("w0 w1 fresh")
    # Another cluster, but the same tiles.
    done = run(*arguments, "--resume", "--nodes", "2", "--slots", "1", *command)
    assert "30 of 35 tasks are up to date, 5 to run" in done.stderr
    assert numbers(read_csv(tmp_path / "m.csv")[2]) == double_loop(files(tmp_path, "a"), files(tmp_path, "b"))


FASTA = {"s1": "ACGT\nAC\n", "s2": "GGGA\n", "s3": "ACACAC\nGT\nA\n"}


def test_records_of_fasta_files(run: Run, tmp_path: Path) -> None:
    """A set may be the sequences of several files; each pair sees two files with a sequence each."""
    sequences = [f">{name} a sequence\n{text}" for name, text in FASTA.items()]
    (tmp_path / "one.fa").write_text("".join(sequences[:2]))
    (tmp_path / "two.fa").write_text(sequences[2] + ">s1 again\nT\n")
    line = "grep -c '>' {a} {b} >&2; echo $(grep -hv '>' {a} | tr -d '\\n' | wc -c)$(grep -hv '>' {b} | tr -d '\\n' | wc -c)"
    options = ["--records", "fasta", "--out", "m.csv", "--nodes", "2", "--slots", "1", "--pair-time", "1s"]
    run("pairs", "*.fa", "one.fa", *options, "--shell", "--", line)
    columns, rows, cells = read_csv(tmp_path / "m.csv")
    assert rows == ["s1", "s2", "s3", "s1#2"] and columns == ["s1", "s2"]
    lengths = [len(text.replace("\n", "")) for text in FASTA.values()] + [1]
    assert numbers(cells) == [[float(f"{a}{b}") for b in lengths[:2]] for a in lengths]
    # One set with itself, where a tile has records of both files.
    run("pairs", "*.fa", "--self", "--symmetric", *options, "--shell", "--", line)
    own = numbers(read_csv(tmp_path / "m.csv")[2])
    for i, j in itertools.product(range(4), range(4)):
        assert own[i][j] == float(f"{lengths[min(i, j)]}{lengths[max(i, j)]}")


def test_records_of_a_csv_file(run: Run, tmp_path: Path) -> None:
    """Each row comes with the first row, so a program that reads columns by name can be used as it is."""
    (tmp_path / "points.csv").write_text('name,x,y\n"a, first",0,1\nb,3,5\n\nc,-2,"2"\n')
    (tmp_path / "distance.py").write_text(
        "import csv, sys\n"
        "p, q = (next(csv.DictReader(open(path))) for path in sys.argv[1:])\n"
        "print(abs(int(p['x']) - int(q['x'])) + abs(int(p['y']) - int(q['y'])))\n"
    )
    options = ["--self", "--records", "csv", "--out", "m.csv", "--slots", "2"]
    run("pairs", "points.csv", *options, "--", "python3", "distance.py", "{a}", "{b}")
    columns, rows, cells = read_csv(tmp_path / "m.csv")
    assert columns == rows == ["a, first", "b", "c"]
    points = [(0, 1), (3, 5), (-2, 2)]
    assert numbers(cells) == [[abs(x - u) + abs(y - v) for u, v in points] for x, y in points]


def test_items_larger_than_a_slots_part_of_the_cache(run: Run, tmp_path: Path) -> None:
    """A pair fits the cache, but not two pairs at once: the tiles have one pair each."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for k in range(3):
            (tmp_path / name / f"{k}").write_bytes(b"x" * (40_000 + k))
    line = "echo $(wc -c < {a})$(wc -c < {b})"
    options = ["--out", "m.csv", "--nodes", "2", "--slots", "1", "--cache", "100KB"]
    run("pairs", "a", "b", *options, "--shell", "--", line)
    cells = numbers(read_csv(tmp_path / "m.csv")[2])
    assert cells == [[float(f"{40_000 + i}{40_000 + j}") for j in range(3)] for i in range(3)]


def test_an_item_that_is_gone(run: Run, tmp_path: Path) -> None:
    """A file that a list names and that is not there is an error before anything runs."""
    make_sets(tmp_path, 2, 2)
    (tmp_path / "list").write_text("a/0.txt\na/gone.txt\n")
    done = run("pairs", "@list", "b", "--out", "m.csv", "--", "cmp", "{a}", "{b}", status=2)
    assert "gone.txt" in done.stderr
    assert not (tmp_path / "m.csv").exists()


MANY = """
import pathlib, sys
for line in pathlib.Path(sys.argv[1]).read_text().splitlines():
    a, b = (pathlib.Path(path).read_text().split() for path in line.split("\\t"))
    print(len(set(a) & set(b)) + len(a) / 1000)
if len(sys.argv) > 2:
    print("3")
"""


def test_a_program_that_takes_many_pairs(run: Run, tmp_path: Path) -> None:
    make_sets(tmp_path)
    (tmp_path / "many.py").write_text(MANY)
    arguments = ["pairs", "a/*.txt", "b/*.txt", "--out", "m.csv", "--chunk", "4"]
    run(*arguments, "--", "python3", "many.py", "{pairs}")
    assert numbers(read_csv(tmp_path / "m.csv")[2]) == double_loop(files(tmp_path, "a"), files(tmp_path, "b"))
    done = run(*arguments, "--", "python3", "many.py", "{pairs}", "more", status=1)
    assert "the program printed 17 lines for 16 pairs" in done.stderr
    assert "35 pairs have no value" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a/*.txt", "b/*.none"], "no file matches `b/*.none`"),
        (["a/*.txt"], "there is one set, `a/*.txt`, and a pair needs two"),
        (["a/0.txt", "a/1.txt", "b/0.txt"], "3 sets are given, and two sets go into pairs"),
        (["a/*.txt", "b/*.txt", "--cache", "50B"], "and a node's cache takes 50 B"),
        (["@none", "b/*.txt"], "cannot read the list `none`"),
        (["a/*.txt", "b", "--records", "fasta"], "it does not begin with `>` as a FASTA file does"),
        (
            ["empty.csv", "empty.csv", "--records", "csv"],
            "the set `empty.csv` is empty: there is no row below its first",
        ),
    ],
)
def test_bad_sets(run: Run, tmp_path: Path, arguments: list[str], expected: str) -> None:
    make_sets(tmp_path)
    (tmp_path / "empty.csv").write_text("name,value\n")
    done = run("pairs", *arguments, "--out", "m.csv", "--", "cmp", "{a}", "{b}", status=2)
    assert expected in done.stderr
    assert not (tmp_path / "m.csv").exists()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["cmp", "{a}", "{c}"], "unknown hole `{c}`"),
        (["cmp", "{a}"], "the command has no {b}"),
        (["cmp", "{a}", "{b}", "{pairs}"], "{pairs} beside {a} or {b}"),
    ],
)
def test_bad_commands(run: Run, tmp_path: Path, command: list[str], expected: str) -> None:
    make_sets(tmp_path)
    done = run("pairs", "a/*.txt", "b/*.txt", "--out", "m.csv", "--", *command, status=2)
    assert expected in done.stderr


def test_other_mishaps(run: Run, tmp_path: Path) -> None:
    make_sets(tmp_path, 2, 2)
    done = run("pairs", "a", "b", "--out", "m.txt", "--", "cmp", "{a}", "{b}", status=2)
    assert "ends neither in .csv nor in .npy" in done.stderr
    (tmp_path / "list").write_text("a/0.txt\na/1.txt\na/0.txt\n")
    done = run("pairs", "@list", "b", "--out", "m.csv", "--shell", "--", "echo none {a} {b}", status=1)
    assert "named more than once" in done.stderr
    assert "the program printed no number; its last line is" in done.stderr
    assert "4 pairs have no value" in done.stderr
    done = run("pairs", "a", "b", "--out", "m.csv", "--", "no-such-program", "{a}", "{b}", status=1)
    assert "cannot start `no-such-program`" in done.stderr
