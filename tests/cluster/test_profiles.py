"""Options that are kept in eyas.toml, and what is said of a file that is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from harness import Eyas, Run

SMALL = '[profile.small]\nnodes = "2..3"\nslots = 1\nprovisioning = "additive"\nkeep-runs = 7\n'


def n_slots(run: Run, folder: Path) -> list[int]:
    """Slots of the nodes that are up in this cluster."""
    join = folder / "dispatcher" / "join.json"
    status = json.loads(run("status", "--json", "--join", join).stdout)
    return [line["slots"] for line in status["executors"]]


def test_a_profile_gives_the_options_and_a_typed_one_wins(run: Run, tmp_path: Path) -> None:
    (tmp_path / "eyas.toml").write_text(SMALL)
    up = run("up", "--profile", "small", "--dir", "a")
    assert up.stdout.startswith("2 nodes up, at most 3; join file: "), up
    join = tmp_path / "a" / "dispatcher" / "join.json"
    assert "2 of 2 to 3 nodes, provisioning additive\n" in run("status", "--join", join).stdout
    assert n_slots(run, tmp_path / "a") == [1, 1]
    run("down", "--join", join)
    # Nothing of the profile is left where the command line says otherwise, whichever way it is written.
    up = run(
        "up", "--dir", "b", "--nodes=1..2", "--slots", "3", "--profile", "small", "--provisioning", "demand"
    )
    assert up.stdout.startswith("1 node up, at most 2; join file: "), up
    join = tmp_path / "b" / "dispatcher" / "join.json"
    assert "1 of 1 to 2 nodes, provisioning demand\n" in run("status", "--join", join).stdout
    assert n_slots(run, tmp_path / "b") == [3]
    run("down", "--join", join)


def test_map_and_run_take_profiles_and_leave_out_what_they_have_no_option_for(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "eyas.toml").write_text(SMALL)
    done = run(
        "map",
        "--profile",
        "small",
        "--range",
        "0..3",
        "--out",
        "o/{index}",
        "--shell",
        "--",
        "echo {index} > {out}",
    )
    assert re.search(r"3 tasks in .*: 3 done, 0 failed", done.stderr), done
    # What follows the command's own `--` is the command's.
    done = run("map", "--range", "0..1", "--print", "--", "echo", "--profile", "nope")
    assert "--profile nope" in done.stdout, done


def test_the_users_file_is_found_and_the_working_folders_comes_first(eyas: Eyas, tmp_path: Path) -> None:
    users = Path(eyas.env["XDG_CONFIG_HOME"]) / "eyas"
    users.mkdir()
    (users / "eyas.toml").write_text('[profile.mine]\nhome-local = "ref"\n')
    done = eyas.run("up", "--profile", "mine", status=2)
    # The path begins at the file's folder.
    assert f"--home-local `{users}/ref` is not a directory" in done.stderr, done
    (tmp_path / "eyas.toml").write_text('[profile.mine]\nhome-local = "here"\n')
    done = eyas.run("up", "--profile", "mine", status=2)
    assert f"--home-local `{tmp_path}/here` is not a directory" in done.stderr, done


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (None, ["error: there is no profile `small`: there is no `{here}/eyas.toml`, and no `"]),
        (
            "",
            [
                "error: there is no profile `small` in `{here}/eyas.toml`\nhint: a profile is a section [profile.NAME]\n"
            ],
        ),
        (
            "[profile.smaller]\n",
            ["error: there is no profile `small` in `{here}/eyas.toml`\nhint: did you mean `smaller`?\n"],
        ),
        (
            "[profile.small]\nslot = 3\nnode = 1\n",
            [
                "error: `{here}/eyas.toml`, line 2: an unknown key `slot`\nhint: did you mean `slots`?\n",
                "`{here}/eyas.toml`, line 3: an unknown key `node`\nhint: did you mean `nodes`?\n",
            ],
        ),
        (
            '[profile.small]\nslots = 2\nnodes = "4..1"\n',
            [
                "error: `{here}/eyas.toml`, line 3: `nodes` cannot be `4..1`: at least 4 nodes and at most 1 cannot both be\n"
            ],
        ),
        ("[profile.small]\nslots = \n", ["error: `{here}/eyas.toml`, line 2: "]),
    ],
)
def test_what_is_wrong_with_a_profile_is_said_before_anything_starts(
    run: Run, tmp_path: Path, text: str | None, sentences: list[str]
) -> None:
    if text is not None:
        (tmp_path / "eyas.toml").write_text(text)
    for verb in (["up"], ["map", "--range", "0..3"]):
        words = ["--", "true"] if verb[0] == "map" else []
        done = run(*verb, "--profile", "small", *words, status=2)
        for sentence in sentences:
            assert sentence.format(here=tmp_path) in done.stderr, done


def test_check_names_all_that_is_wrong_in_all_files(eyas: Eyas, tmp_path: Path) -> None:
    done = eyas.run("config", "check", status=2)
    assert done.stderr.startswith(f"error: there is no `{tmp_path}/eyas.toml`, and no `"), done
    here, users = tmp_path / "eyas.toml", Path(eyas.env["XDG_CONFIG_HOME"]) / "eyas" / "eyas.toml"
    users.parent.mkdir()
    here.write_text(SMALL + "[profile.other]\n")
    users.write_text("[profile.mine]\nslots = 0\ncash = 4\n")
    done = eyas.run("config", "check", status=2)
    assert done.stdout == f"{here}: 2 profiles: small, other\n", done
    assert f"`{users}`, line 3: an unknown key `cash`\nhint: did you mean `cache`?\n" in done.stderr, done
    users.write_text('[profile.mine]\nslots = 0\ncache = "much"\nplacement = "affinity"\n')
    done = eyas.run("config", "check", users, status=2)
    first, second = done.stderr.splitlines()
    assert re.match(rf"error: `{users}`, line 2: `slots` cannot be `0`: ", first), done
    assert re.match(rf"`{users}`, line 3: `cache` cannot be `much`: ", second), done
    users.write_text('[profile.a]\n\n[profile.b]\nnodes = 4\nplacement = "random-place"\n')
    done = eyas.run("config", "check", users, status=2)
    assert (
        f"error: `{users}`, line 5: `placement` cannot be `random-place`: there is no placement policy"
        in done.stderr
    ), done
    assert eyas.run("config", "check", here).stdout == f"{here}: 2 profiles: small, other\n"
    assert "there is no" in eyas.run("config", "check", tmp_path / "none.toml", status=2).stderr


NONSENSE = """[profile.a]
listen = "nonsense"
advertise = ""
lease = "0s"
slots = [1]
window = 0
utilisation-threshold = 3
cache = 0
provider = "slurmm"
start = "x {nam}"

[profile.b]
eviction = "lrru"
"""
# The key that each line is about, and what is allowed.
ALLOWED = {
    2: "`listen` cannot be `nonsense`: write HOST:PORT, such as 0.0.0.0:7700",
    3: "`advertise` cannot be ``: write HOST:PORT, such as login1:7700",
    4: "`lease` cannot be `0s`: write a time of at least 1s",
    5: "`slots` is a list, and wants a text in quotes, or a number",
    6: "`window` cannot be `0`: write a number of tasks, at least 1",
    7: "`utilisation-threshold` cannot be `3`: write a share from 0 to 1, such as 0.8",
    8: "`cache` cannot be `0`: write at least 1 byte, such as 20GiB",
    9: "`provider` cannot be `slurmm`: there is no such provider; choose one of local, command, ssh, allocation",
    10: "`start` cannot be `x {nam}`: an unknown hole `{nam}` in --start; did you mean {name}?",
    13: "`eviction` cannot be `lrru`: there is no eviction policy `lrru`",
}


def test_all_mistakes_are_said_at_once_each_with_its_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "eyas.toml"
    file.write_text(NONSENSE)
    for words in (["config", "check"], ["up", "--profile", "a"]):
        done = run(*words, status=2)
        lines = done.stderr.removeprefix("error: ").splitlines()
        assert len(lines) == len(ALLOWED), done
        for said, (number, sentence) in zip(lines, ALLOWED.items()):
            assert said.startswith(f"`{file}`, line {number}: {sentence}"), done


def test_what_cannot_be_together_is_said_with_the_line_of_the_key(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "eyas.toml"
    file.write_text(
        '[profile.a]\nslots = 1\nstop = "s {id}"\nprovider = "command"\n\nstart = "x {walltime}"\n'
        '[profile.b]\nslots = 1\nstart = "x {script}"\nwalltime = "1h"\n'
    )
    done = run("config", "check", status=2)
    expect = [
        (4, "a", "--provider command needs --list"),
        (6, "a", "--start has {walltime}, and nobody says how long a block may live"),
        (6, "a", "--start has neither {script} nor {join}, so it starts no executor"),
        (9, "b", "--start has nothing to say to --provider local"),
        (10, "b", "--walltime has nothing to say to --provider local"),
    ]
    lines = done.stderr.removeprefix("error: ").splitlines()
    assert lines == [f"`{file}`, line {n}: profile `{name}`: {why}" for n, name, why in expect], done


def test_keys_of_another_provider_than_the_typed_one_are_not_used(run: Run, tmp_path: Path) -> None:
    (tmp_path / "eyas.toml").write_text(
        '[profile.p]\nprovider = "command"\nstart = "x {script}"\nlist = "x"\nstop = "x {id}"\nslots = 2\n'
    )
    up = run("up", "--profile", "p", "--provider", "local", "--dir", "a")
    said = "note: `start`, `list`, `stop` of profile `p`: not used, as --provider local has no such option\n"
    assert said in up.stderr, up
    assert n_slots(run, tmp_path / "a") == [2]
    run("down", "--join", tmp_path / "a" / "dispatcher" / "join.json")
