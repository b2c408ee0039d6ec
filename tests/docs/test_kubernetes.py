"""The manifests of docs/kubernetes have the form that Kubernetes and KubeRay take. Nothing here runs them."""

from __future__ import annotations

import copy
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, Eyas, lacking

# A manifest for an old Kubernetes is one for a new one.
VERSIONS = ["1.29", "1.37"]
FOLDER = ROOT / "docs" / "kubernetes"


def validator(document: dict[str, Any], version: str) -> Any:
    """What checks a document of that kind: the schema of Kubernetes, or KubeRay's, with the pods of Kubernetes. A key that is not in the
    schema is wrong."""
    validate = module("kubernetes_validate")
    folder = next(
        (Path(validate.__file__).parent / "kubernetes-json-schema").glob(f"v{version}.*-local-strict")
    )
    if document["kind"] == "RayJob":
        schema = json.loads((ROOT / "tests" / "docs" / "kuberay-rayjob.schema.json").read_text())
    else:
        group, _, api = document["apiVersion"].rpartition("/")
        name = "-".join(part for part in (document["kind"].lower(), group, api) if part)
        schema = json.loads((folder / f"{name}.json").read_text())
    referencing = module("referencing")
    definitions = referencing.Resource.from_contents(json.loads((folder / "_definitions.json").read_text()))
    registry = referencing.Registry().with_resource("/api/_definitions.json", definitions)
    return module("jsonschema").Draft202012Validator(schema, registry=registry)


def module(name: str) -> Any:
    if importlib.util.find_spec(name) is None:
        lacking(f"needs the Python package {name}: make .venv/.test")
    return importlib.import_module(name)


def documents(name: str) -> list[dict[str, Any]]:
    return list(module("yaml").safe_load_all((FOLDER / name).read_text()))


def wrong(document: dict[str, Any], version: str) -> list[str]:
    return [error.message for error in validator(document, version).iter_errors(document)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["ray.yaml", "rayjob.yaml"])
def test_each_manifest_has_the_form_of_its_kind(name: str, version: str) -> None:
    for document in documents(name):
        assert wrong(document, version) == [], document["kind"]


def test_the_schemas_find_what_is_misspelt() -> None:
    (job,) = documents("rayjob.yaml")
    misspelt = copy.deepcopy(job)
    misspelt["spec"]["rayClusterSpec"]["workerGroupSpec"] = []
    assert wrong(misspelt, VERSIONS[-1]), "KubeRay's own keys"
    misspelt = copy.deepcopy(job)
    misspelt["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    assert wrong(misspelt, VERSIONS[-1]), "keys of pods"
    service = documents("ray.yaml")[0]
    service["spec"]["ports"][0]["port"] = "many"
    assert wrong(service, VERSIONS[-1])


def test_the_options_in_the_manifests_are_ones_of_eyas(eyas: Eyas, tmp_path: Path) -> None:
    lines = [documents("rayjob.yaml")[0]["spec"]["entrypoint"]]
    lines += [documents("ray.yaml")[-1]["spec"]["template"]["spec"]["containers"][0]["command"][-1]]
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"command": ["true"]}\n')
    for line in lines:
        words = line[line.index("eyas run") :].replace('"', "").replace("$POD_IP", "127.0.0.1").split()[2:]
        words[0] = str(tasks)
        done = eyas.run("run", *words, "--dry-run")
        assert "true" in done.stdout, done
