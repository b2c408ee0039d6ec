"""`eyas.provision` without a batch system: what Parsl is given, and what listings say, from recorded output."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest
from eyas.provision import KINDS, Pool, Refused, Settings, kinds, listings
from eyas.provision.pool import class_of, complaints
from eyas.provision.ray_pool import NODE_UNKNOWN, RayPool, Share, View, _cause, share_of
from eyas.provision.ray_pool import complaints as ray_complaints

FULL: dict[str, Any] = {
    "queue": "q",
    "account": "a",
    "walltime_s": 5400,
    "slots": 4,
    "memory_bytes": 6 * kinds.GIB,
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_from_settings_is_what_parsl_takes(kind: str) -> None:
    parameters = inspect.signature(class_of(kind).__init__).parameters
    given = kinds.arguments_of(Settings(kind=kind, **FULL))
    # A setting that Parsl's class lacks is refused by the command line, or means nothing there.
    unknown = given.keys() - parameters.keys()
    assert unknown <= {"walltime", "nodes_per_block"}, unknown


def test_slurm_gets_whole_nodes_unless_slots_are_said_and_minutes_are_rounded_up() -> None:
    assert kinds.arguments_of(Settings(kind="slurm"))["exclusive"] is True
    given = kinds.arguments_of(Settings(kind="slurm", slots=2, walltime_s=61, memory_bytes=1))
    assert given == {
        "cores_per_node": 2,
        "mem_per_node": 1,
        "exclusive": False,
        "walltime": "00:02:00",
        "nodes_per_block": 1,
    }


def test_options_are_held_against_parsls_names_and_types() -> None:
    def wrong(**options: Any) -> list[str]:
        return [f"{text} / {hint}" for text, hint in complaints(Settings(kind="slurm", options=options))]

    assert wrong(qos="long", exclusive=False, partition=7, gres="gpu:1", launcher="SrunLauncher") == []
    assert wrong(qoss="x") == ["--provider slurm has no option `qoss` / did you mean `qos`?"]
    assert wrong(worker_init="x") == ["the option `worker_init` is eyas's own / say it by `setup`"]
    assert wrong(exclusive="yes") == ["the option `exclusive` cannot be 'yes': it is true or false / None"]
    assert wrong(gpus_per_node="2x")[0].startswith(
        "the option `gpus_per_node` cannot be '2x': it is a whole number"
    )
    assert wrong(launcher="Nope")[0].startswith("there is no launcher 'Nope'")
    (text, _), *_ = complaints(Settings(kind="kubernetes"))
    assert text == "--provider kubernetes needs the option `image`"


def said(**answers: str) -> listings.Ask:
    """A batch system whose commands print this; a command is known by its first word."""

    def ask(command: str) -> tuple[int, str, str]:
        program = command.split()[0]
        return (0, answers[program], "") if program in answers else (127, "", f"sh: {program}: not found")

    return ask


def rows(kind: str, **answers: str) -> list[tuple[str, str, str, str]]:
    return [(r.id, r.name, r.state, r.why) for r in listings.BY_COMMAND[kind](said(**answers), {})]


NAME = "eyas-c1-3.1764036000.25"


def test_slurm() -> None:
    out = (
        f"41|{NAME}|RUNNING|2|None\n42|my job|PENDING|1|Resources\n43|eyas-c1-4.1.2|NODE_FAIL|1|None\n"
        "44|eyas-c1-5.1.2|COMPLETING|1|NonZeroExitCode\n45|eyas-c1-6.1.2|PENDING|1|(null)\n"
        "46|a|PENDING|1|JobHeldAdmin\n47|b|PENDING|1|launch failed requeued held\n48|c|SPECIAL_EXIT|1|None\n"
        "49|d|PENDING|1|JobHeldUser\n50|e|PENDING|9|PartitionNodeLimit\n51|f|PENDING|1|ReqNodeNotAvail, UnavailableNodes:n1\n"
    )
    assert rows("slurm", squeue=out) == [
        ("41", NAME, "running", ""),
        ("42", "my job", "queued", "Resources: it waits for nodes to become free"),
        ("43", "eyas-c1-4.1.2", "ended", "node fail"),
        ("44", "eyas-c1-5.1.2", "ended", "completing (NonZeroExitCode)"),
        ("45", "eyas-c1-6.1.2", "queued", ""),
        ("46", "a", "stuck", "Slurm keeps it back: JobHeldAdmin: an administrator or Slurm itself holds it"),
        ("47", "b", "stuck", "Slurm keeps it back: launch failed requeued held"),
        ("48", "c", "stuck", "Slurm keeps it back: SPECIAL_EXIT"),
        ("49", "d", "queued", "JobHeldUser: its user holds it"),
        ("50", "e", "queued", "PartitionNodeLimit: it asks for more nodes than its partition has or allows"),
        ("51", "f", "queued", "ReqNodeNotAvail, UnavailableNodes:n1: a node that it needs is not available"),
    ]
    assert listings.slurm(said(squeue=out), {})[0].n_nodes == 2
    ((*_, state, why),) = rows("slurm", squeue=f"41|{NAME}|PENDING|1|PartitionTimeLimit\n")
    assert state == "stuck" and why.endswith("it asks for more time than its partition allows")


def test_slurms_limit_of_time_is_that_of_the_partition_that_jobs_go_to() -> None:
    def limit(out: str, partition: str | None = None, **options: Any) -> tuple[str, int] | None:
        return listings.slurm_time_limit(said(sinfo=out), partition, options)

    both = "cpu*|1-02:03:04\ncpu*|1-02:03:04\ngpu|30:00\n"
    assert limit(both) == ("cpu", 93_784)
    assert limit("gpu|30:00\n", "gpu") == ("gpu", 1_800)
    # Not known, none, and whichever of several lets a job in.
    assert limit("gpu|30:00\n") is None
    assert limit("cpu*|infinite\n") is None
    assert limit(both, "cpu,gpu") is None
    assert limit(both, scheduler_options="#SBATCH -p gpu") is None
    assert listings.slurm_time(93_784) == "1-02:03:04" and listings.slurm_time(3_600) == "1:00:00"


def test_grid_engine() -> None:
    job = "<job_list state='x'><JB_job_number>{}</JB_job_number><JB_name>{}</JB_name><state>{}</state></job_list>"
    text = job.format(7, NAME, "r") + job.format(8, "other", "qw") + job.format(9, "eyas-c1-5.1", "Eqw")
    text += job.format(10, "eyas-c1-6.1", "hqw") + job.format(11, "eyas-c1-7.1", "dr")
    xml = f"<?xml version='1.0'?><job_info><queue_info>{text}</queue_info></job_info>"
    assert rows("grid-engine", qstat=xml) == [
        ("7", NAME, "running", ""),
        ("8", "other", "queued", ""),
        ("9", "eyas-c1-5.1", "stuck", "Grid Engine has it in the error state Eqw"),
        ("10", "eyas-c1-6.1", "queued", "it is held"),
        ("11", "eyas-c1-7.1", "running", ""),
    ]


def test_grid_engines_words_for_an_error_state() -> None:
    block = "job_number:                 {}\nerror reason          1:      11/25/2026 06:37:47 [0:20183]: error: {}\n"
    out = "====\n" + block.format(9, "can't open output file: no") + "====\n" + block.format(10, "other")
    assert listings.grid_engine_errors(said(qstat=out), ["9", "10", "11"]) == {
        "9": "error: can't open output file: no",
        "10": "error: other",
    }
    assert listings.grid_engine_errors(said(), ["9"]) == {}


def test_grid_engines_words_for_a_job_that_waits() -> None:
    line = 'Job 2 (-l h_rt=600,mem_free=900G) cannot run in queue "all.q@g{}" because job requests unknown resource (mem_free)\n'
    out = line.format(1) + line.format(2) + "verification: no suitable queues\n"
    assert listings.grid_engine_why(said(qalter=out), "2") == (
        'no queue of Grid Engine can ever hold it: it cannot run in queue "all.q@g1" because job requests unknown '
        "resource (mem_free)"
    )
    out = "verification: found suitable queue(s)\n"
    assert listings.grid_engine_why(said(qalter=out), "2") == "all queues that could hold it are busy"
    assert listings.grid_engine_why(said(), "2") == ""


def test_a_job_that_is_over_needs_no_qdel() -> None:
    gone = 'denied: job "1" does not exist\n'
    assert listings.is_gone("grid-engine", gone)
    assert listings.is_gone("grid-engine", gone + "me has registered the job 2 for deletion\n")
    assert not listings.is_gone("grid-engine", gone + "denied: you may not delete job 3\n")
    assert not listings.is_gone("grid-engine", "")
    assert not listings.is_gone("slurm", gone)


def test_the_line_of_qsub_that_says_why() -> None:
    err = 'Unable to run job: unknown resource "x"\nExiting.\n'
    assert listings.words_of("qsub -terse x", 1, "", err) == (
        'qsub ended with exit status 1: Unable to run job: unknown resource "x"'
    )


def test_pbs() -> None:
    json = (
        '{"Jobs": {"5.head": {"Job_Name": "%s", "job_state": "Q"}, "6.head": {"Job_Name": "x", "job_state": "F", '
        '"Exit_status": 271}}}'
    )
    assert rows("pbspro", qselect="5.head\n6.head\n", qstat=json % NAME) == [
        ("5.head", NAME, "queued", ""),
        ("6.head", "x", "ended", "exit status 271"),
    ]
    assert rows("pbspro", qselect="") == []
    xml = f"<Data><Job><Job_Id>5.h</Job_Id><Job_Name>{NAME}</Job_Name><job_state>R</job_state></Job></Data>"
    assert rows("torque", qselect="5.h\n", qstat=xml) == [("5.h", NAME, "running", "")]


def test_lsf_and_htcondor() -> None:
    assert rows("lsf", bjobs=f"9|PEND|{NAME}\n10|EXIT|a b|c\n") == [
        ("9", NAME, "queued", ""),
        ("10", "a b|c", "ended", "exit"),
    ]
    none = "No unfinished job found"
    assert listings.lsf(lambda _: (255, "", none), {}) == []
    condor = f"118907 0 2 parsl.{NAME}.script\n118908 0 4 parsl.eyas-c1-4.1.script\n118909 0 1 other.sh\n"
    assert rows("htcondor", condor_q=condor) == [
        ("118907.0", f"{NAME}.script", "running", ""),
        ("118908.0", "eyas-c1-4.1.script", "ended", "completed"),
        ("118909.0", "other.sh", "queued", ""),
    ]


@pytest.mark.parametrize("kind", listings.BY_COMMAND)
def test_a_listing_that_fails_says_so_in_the_commands_own_words(kind: str) -> None:
    with pytest.raises(listings.Failed, match=r"^\w+ ended with exit status 127: sh: \w+: not found$"):
        rows(kind)


def test_a_block_is_known_by_the_beginning_of_its_jobs_name() -> None:
    for name, block in [
        (NAME, "eyas-c1-3"),
        ("eyas-c1-3", "eyas-c1-3"),
        ("eyas-c1-30.5", "eyas-c1-30"),
        ("eyas-c1-3x", None),
        ("eyas-c1-03.1", None),
        ("eyas-c2-3.1", None),
        ("parsl.eyas-c1-3.1", None),
    ]:
        assert listings.block_of(name, "eyas-c1-") == block, name


@pytest.mark.parametrize("kind", ["grid-engine", "pbspro", "torque", "lsf", "htcondor"])
def test_what_would_be_submitted_is_shown_and_nothing_is_run(kind: str, tmp_path: Path) -> None:
    pool = Pool(Settings(kind=kind, walltime_s=5400), tmp_path, tmp_path / "book.json")
    script, command = pool.describe("eyas-c1-1", tmp_path / "eyas-c1-1.sh", 1)
    assert f"/bin/sh {tmp_path}/eyas-c1-1.sh" in script
    assert command.split()[0] in ("qsub", "bsub", "condor_submit"), command
    assert "eyas-c1-1." in command
    assert list(tmp_path.iterdir()) == []


def test_a_job_of_several_nodes_needs_somebody_who_starts_them(tmp_path: Path) -> None:
    pool = Pool(Settings(kind="htcondor", nodes_per_job=2), tmp_path, tmp_path / "book.json")
    with pytest.raises(Refused, match="does not know how jobs of htcondor start a command on each"):
        pool.describe("eyas-c1-1", tmp_path / "x.sh", 2)


def test_a_job_of_grid_engine_asks_for_the_slots_of_all_its_nodes(tmp_path: Path) -> None:
    options = {"pe": "mpi", "memory_resource": "h_vmem", "scheduler_options": "#$ -R y"}
    settings = Settings(
        kind="grid-engine", account="abc", nodes_per_job=3, slots=4, memory_bytes=8 << 30, options=options
    )
    pool = Pool(settings, tmp_path, tmp_path / "book.json")
    script, _ = pool.describe("eyas-c1-1", tmp_path / "x.sh", 3)
    assert "\n#$ -A abc\n#$ -pe mpi 12\n#$ -l h_vmem=2048M\n#$ -R y\n" in script
    assert 'qrsh -inherit -nostdin "$eyas_host" "$@"' in script
    assert f"\neyas_on_each_host /bin/sh {tmp_path}/x.sh\n" in script
    # A job for the last node that is wanted is smaller.
    script, _ = pool.describe("eyas-c1-2", tmp_path / "x.sh", 1)
    assert "\n#$ -pe mpi 4\n" in script and "qrsh" not in script


def test_several_nodes_of_grid_engine_need_a_parallel_environment(tmp_path: Path) -> None:
    for options in ({}, {"scheduler_options": "#$ -R y"}):
        with pytest.raises(Refused, match="need a parallel environment of Grid Engine"):
            Pool(
                Settings(kind="grid-engine", nodes_per_job=2, options=options),
                tmp_path,
                tmp_path / "book.json",
            )
    with pytest.raises(Refused, match="`memory_resource` cannot be 7: it is a text"):
        Pool(Settings(kind="grid-engine", options={"memory_resource": 7}), tmp_path, tmp_path / "book.json")
    options = {"scheduler_options": "#$ -pe mpi 2"}
    Pool(Settings(kind="grid-engine", nodes_per_job=2, options=options), tmp_path, tmp_path / "book.json")


def test_a_command_that_is_not_there_is_the_reason(tmp_path: Path) -> None:
    pool = Pool(Settings(kind="lsf"), tmp_path, tmp_path / "book.json")
    with pytest.raises(listings.Failed, match=r"bsub ended with exit status 127: .*bsub: not found"):
        pool.submit("eyas-c1-1", tmp_path / "x.sh", 1)


def test_a_block_of_ray_takes_what_is_free_or_what_was_said() -> None:
    total = {"CPU": 8.0, "GPU": 2.0, "memory": 800.0, "big": 1.0}
    free = {**total, "CPU": 6.5, "memory": 700.0}

    def share(free: dict[str, float] = free, **said: Any) -> tuple[int, int, int] | None:
        found = share_of(Settings(kind="ray", **said), "n", total, free)
        return None if found is None else (found.cpus, found.gpus, found.memory)

    assert share() == (6, 2, 600), "memory goes with the processors"
    assert share(total) == (8, 2, 800)
    assert share(slots=2) == (2, 0, 200), "gpus are for who says so"
    assert share(slots=2, gpus=1) == (2, 1, 200)
    assert share(slots=2, gpus="auto") == (2, 2, 200)
    assert share(slots=7) is None and share(gpus=3) is None and share(memory_bytes=701) is None
    assert share(memory_bytes=650) == (6, 2, 650)
    assert share({**free, "CPU": 0.5}) is None
    assert share(options={"resources": {"big": 1}}) == (6, 2, 600)
    assert share(options={"resources": {"big": 2}}) is None
    assert share(options={"accelerator_type": "A100"}) is None
    assert share({**free, "accelerator_type:A100": 1.0}, options={"accelerator_type": "A100"}) == (6, 2, 600)


def test_options_of_ray_are_held_against_those_of_its_actors() -> None:
    def wrong(**options: Any) -> list[str]:
        return [f"{text} / {hint}" for text, hint in ray_complaints(Settings(kind="ray", options=options))]

    assert wrong(resources={"big": 1}, accelerator_type="A100", runtime_env={"env_vars": {}}) == []
    assert wrong(num_cpus=3) == ["the option `num_cpus` is eyas's own / say it by `slots`"]
    assert wrong(resource={}) == ["--provider ray has no option `resource` / did you mean `resources`?"]
    assert wrong(resources={"big": "x"}) == [
        "the option `resources` cannot be {'big': 'x'}: it is a section of names and numbers above 0 / None"
    ]


class Groups:
    """Placement groups of a Ray with one node of two processors, which goes to the group that has waited longest."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def placement_group(self, _shape: object, strategy: str) -> object:
        self.asked.append(group := object())
        return group

    def remove_placement_group(self, group: object) -> None:
        self.asked.remove(group)

    def placement_group_table(self, group: object) -> dict[str, Any]:
        if group is not self.asked[0]:
            return {"state": "PENDING"}
        return {"state": "CREATED", "bundles_to_node_id": {0: "n"}, "bundles": {0: {"CPU": 2.0}}}


class OneNode(RayPool):
    """The pool of that Ray, whose actors are noted."""

    def __init__(self, folder: Path) -> None:
        self.started: list[str] = []
        super().__init__(Settings(kind="ray", slots=2), folder, folder / "book", "auto")

    def _connect(self) -> None:
        pass

    def _put_program(self) -> tuple[dict[str, Any], Any]:
        return {}, None

    def _start(self, name: str, share: Share) -> None:
        self.started.append(name)
        self._placed[name] = share.node


def test_room_that_ray_gave_to_one_block_while_another_ones_actor_starts_there_is_given_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("ray")
    groups = Groups()
    monkeypatch.setitem(sys.modules, "ray.util", groups)
    pool = OneNode(tmp_path)
    for name in ("c-1", "c-2"):
        pool._book.add(name, name)
    pool._place(View())
    both = list(groups.asked)
    assert len(both) == 2, "both blocks wait for a node"

    def node(state: str) -> View:
        view = View({"n": "host"}, {"n": {"CPU": 2.0}}, {"n": {}})
        if state:
            view.actors["c-1"] = (state, "n" if state == "ALIVE" else "", "")
        return view

    pool._place(node(""))
    assert pool.started == ["c-1"] and groups.asked == both[1:]
    # Before its actor asked for them, Ray gave the processors to the other group, and so wants no further node.
    pool._place(node("PENDING_CREATION"))
    assert len(groups.asked) == 1 and groups.asked != both[1:], "the other block asks anew"
    asked = list(groups.asked)
    pool._place(node("ALIVE"))
    assert pool.started == ["c-1"] and groups.asked == asked, "and waits for a node of its own"


def test_a_block_whose_node_ray_does_not_know_waits_again_but_not_for_ever(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    pool = OneNode(tmp_path)
    pool._book.add("c-1", "c-1")
    why = f"The node specified via {NODE_UNKNOWN}, and soft=False was specified."

    def look(state: str, actor: str, why: str = "") -> list[str]:
        """What becomes of an actor in this state; gives the blocks that have been started so far."""
        view = View({"n": "host"}, {"n": {"CPU": 2.0}}, {"n": {"CPU": 2.0}})
        if state:
            view.actors["c-1"], view.ids["c-1"] = (state, "", why), actor
        view = pool._place(view)
        return [*pool.started, *(f"{name} is over" for name in view.actors if state == "DEAD")]

    assert look("", "") == ["c-1"]
    assert look("DEAD", "a", why) == ["c-1"] * 2
    assert look("PENDING_CREATION", "b") == ["c-1"] * 2
    # Others are no such thing.
    assert look("DEAD", "b", "The actor is dead because its node has died.")[2:] == ["c-1 is over"]
    assert [look("DEAD", actor, why) for actor in "bc"] == [["c-1"] * 3, ["c-1"] * 4]
    assert look("DEAD", "d", why)[4:] == ["c-1 is over"], "three times in a row"
    pool._n_unknown.clear()
    assert look("ALIVE", "d") == ["c-1"] * 4
    assert look("DEAD", "d", why)[4:] == ["c-1 is over"], "a node of it had been there"
    assert _cause(why) == "Ray did not know the node that its actor was to start on"
