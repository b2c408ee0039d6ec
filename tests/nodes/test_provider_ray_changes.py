"""Nodes of Rays that change by themselves: one that adds machines, one that loses its store. Each test has a Ray of its own."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest
from harness import PATIENCE_S, Eyas, wait_until
from rays import none_left, ray
from test_provider_ray import begin, finish, gated
from weather import Cluster

# By which Ray's provider of nodes on one machine knows the head.
HEAD_ID = "fffffffffffffffffffffffffffffffffffffffffffffffffff00000"


def test_a_cluster_that_scales_by_itself_grows_for_nodes_that_are_wanted(eyas: Eyas, tmp_path: Path) -> None:
    """Ray's own autoscaler, which starts raylets on this machine in place of machines of a cloud."""
    with ray() as made:
        config = {
            "cluster_name": "test",
            "provider": {
                "type": "fake_multinode",
                "disable_node_updaters": True,
                "disable_launch_config_check": True,
                "head_node_id": HEAD_ID,
                # All of them have one address.
                "use_node_id_as_ip": True,
                "gcs_address": f"{made.host}:{made.port}",
            },
            "available_node_types": {
                "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
                "worker": {"resources": {"CPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": 2},
            },
            "head_node_type": "ray.head.default",
            "max_workers": 2,
            "idle_timeout_minutes": 0.1,
            "upscaling_speed": 1,
            "auth": {},
            "docker": {},
            "initialization_commands": [],
            "setup_commands": [],
            "head_setup_commands": [],
            "worker_setup_commands": [],
            "head_start_ray_commands": [],
            "worker_start_ray_commands": [],
            "file_mounts": {},
            "cluster_synced_files": [],
            "file_mounts_sync_continuously": False,
            "rsync_exclude": [],
            "rsync_filter": [],
        }
        path = tmp_path / "autoscaler.json"
        path.write_text(json.dumps(config))
        made.env |= {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
        made.start_head("--num-cpus=0", "--include-dashboard=false", f"--autoscaling-config={path}")
        eyas.env["RAY_ADDRESS"] = made.address
        cluster = Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
        gate, tasks = gated(cluster, 4)
        running = begin(cluster, tasks, "--nodes", "0..2", "--slots", "2")
        wait_until(
            lambda: len(set(cluster.ran())) == 4, "four tasks to run on two new nodes", timeout=3 * PATIENCE_S
        )
        finish(running, gate, 4)
        none_left(made)


@pytest.mark.long  # Ray takes a minute and more to see it.
def test_a_cluster_whose_control_store_is_killed_costs_no_task(eyas: Eyas, tmp_path: Path) -> None:
    """Ray's own end of it: its nodes wait for the store for a while and end then, with all actors. A new cluster at the address is taken."""
    with ray() as made:
        # A minute, where nobody says it.
        made.env["RAY_gcs_rpc_server_reconnect_timeout_s"] = "5"
        words = ["--num-cpus=2", "--num-gpus=0", "--include-dashboard=false"]
        made.start_head(*words)
        eyas.env["RAY_ADDRESS"] = made.address
        cluster = Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
        gate, tasks = gated(cluster, 2)
        running = begin(cluster, tasks, "--address", made.address, "--nodes", "0..1", "--lease", "60s")
        cluster.begun("t0", "t1")
        (store,) = [p.pid for p in made.processes() if p.words[0].endswith("/gcs_server")]
        os.kill(store, signal.SIGKILL)
        wait_until(lambda: not made.executors(), "the end of the executors", 3 * PATIENCE_S, running)
        said = "warning: nobody could list the blocks: "
        wait_until(lambda: said in running.stderr, "a sentence about it", 3 * PATIENCE_S, running)
        made.remove("head")
        made.start_head(*words)
        wait_until(
            lambda: len(cluster.ran()) >= 4, "both tasks to run again", timeout=5 * PATIENCE_S, alive=running
        )
        gate.touch()
        done = running.wait(3 * PATIENCE_S)
        assert re.search(r"2 tasks in .*: 2 done, 0 failed", done.stderr), done
        assert "Traceback" not in done.stderr, done
        cluster.expect(t0=b"x\n", t1=b"x\n")
        none_left(made)
