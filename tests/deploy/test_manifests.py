# SPDX-License-Identifier: Apache-2.0
"""Container, compose and Kubernetes files: well formed, consistent with each other and with what the daemon needs."""

import copy
import re
import subprocess
import tomllib

import kubernetes_schema
import pydantic
import pytest
import yaml

CHECKPOINT_SECONDS = 60


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


@pytest.fixture(scope="module")
def kubernetes(source_root):
    found = []
    for path in sorted((source_root / "deploy/kubernetes").glob("*.yaml")):
        found += [kubernetes_schema.KINDS[document["kind"]].model_validate(document) for document in documents(path)]
    return found


def of_kind(objects, kind):
    return [item for item in objects if item.kind == kind]


def test_every_kubernetes_object_follows_its_schema(kubernetes):
    kinds = {item.kind for item in kubernetes}
    assert kinds == {"ConfigMap", "PersistentVolumeClaim", "Deployment", "NetworkPolicy", "PodDisruptionBudget",
                     "PodMonitor"}


def test_the_schema_refuses_a_field_that_the_api_does_not_have(source_root):
    deployment = next(document for document in documents(source_root / "deploy/kubernetes/blockswap.yaml")
                      if document["kind"] == "Deployment")
    kubernetes_schema.Deployment.model_validate(deployment)
    wrong = copy.deepcopy(deployment)
    wrong["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(pydantic.ValidationError, match="readinesProbe"):
        kubernetes_schema.Deployment.model_validate(wrong)
    wrong = copy.deepcopy(deployment)
    wrong["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = "96 GB"
    with pytest.raises(pydantic.ValidationError, match="quantity"):
        kubernetes_schema.Deployment.model_validate(wrong)


def test_one_writer_and_time_for_a_checkpoint(kubernetes):
    (deployment,) = of_kind(kubernetes, "Deployment")
    assert deployment.spec.replicas == 1
    assert deployment.spec.strategy.type == "Recreate"
    (settings,) = of_kind(kubernetes, "ConfigMap")
    grace = tomllib.loads(settings.data["blockswapd.toml"])["stop_grace"]
    assert deployment.spec.template.spec.terminationGracePeriodSeconds >= grace + CHECKPOINT_SECONDS


def test_the_pod_has_what_it_mounts_and_no_rights_it_does_not_need(kubernetes):
    (deployment,) = of_kind(kubernetes, "Deployment")
    pod = deployment.spec.template.spec
    (container,) = pod.containers
    volumes = {volume.name: volume for volume in pod.volumes}
    assert {mount.name for mount in container.volumeMounts} == set(volumes)
    claims = {claim.metadata.name for claim in of_kind(kubernetes, "PersistentVolumeClaim")}
    assert {v.persistentVolumeClaim.claimName for v in volumes.values() if v.persistentVolumeClaim} == claims
    assert volumes["shm"].emptyDir.medium == "Memory"
    assert pod.securityContext.runAsNonRoot and pod.securityContext.runAsUser > 0
    assert not container.securityContext.allowPrivilegeEscalation
    assert container.securityContext.capabilities.drop == ["ALL"]
    assert container.resources.requests["memory"] == container.resources.limits["memory"]
    assert "cpu" not in container.resources.limits
    assert "nvidia.com/gpu" in container.resources.limits


def test_labels_ports_and_probes_meet(kubernetes):
    (deployment,) = of_kind(kubernetes, "Deployment")
    labels = deployment.spec.template.metadata.labels
    for item in of_kind(kubernetes, "NetworkPolicy"):
        assert item.spec.podSelector.matchLabels.items() <= labels.items()
    for kind in ("PodDisruptionBudget", "PodMonitor"):
        for item in of_kind(kubernetes, kind):
            assert item.spec.selector.matchLabels.items() <= labels.items()
    (container,) = deployment.spec.template.spec.containers
    ports = {port.name: port.containerPort for port in container.ports}
    (settings,) = of_kind(kubernetes, "ConfigMap")
    probes = tomllib.loads(settings.data["blockswapd.toml"])["probes"]
    assert probes == f"0.0.0.0:{ports['metrics']}"
    for probe, path in ((container.startupProbe, "/healthz"), (container.livenessProbe, "/healthz"),
                        (container.readinessProbe, "/readyz")):
        assert (probe.httpGet.path, probe.httpGet.port) == (path, "metrics")
    (policy,) = of_kind(kubernetes, "NetworkPolicy")
    assert [port.port for rule in policy.spec.ingress for port in rule.ports] == [ports["metrics"]]
    (monitor,) = of_kind(kubernetes, "PodMonitor")
    assert monitor.spec.podMetricsEndpoints[0].port == "metrics"


def settings_files(source_root):
    yield "systemd", (source_root / "deploy/systemd/blockswapd.toml").read_text()
    yield "container", (source_root / "deploy/container/blockswapd.toml").read_text()
    (settings,) = [document for document in documents(source_root / "deploy/kubernetes/blockswap.yaml")
                   if document["kind"] == "ConfigMap"]
    yield "kubernetes", settings["data"]["blockswapd.toml"]


def test_the_daemon_knows_every_setting_of_the_shipped_files(programs, source_root, tmp_path):
    for name, text in settings_files(source_root):
        file = tmp_path / f"{name}.toml"
        file.write_text(text)
        programs.run("blockswapd", "--config", file, "--version")
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('stat_dir = "/nowhere"\n')
    refused = programs.run("blockswapd", "--config", wrong, "--version", check=False)
    assert refused.returncode != 0 and "state_dir" in refused.stderr


def test_compose_follows_its_schema_and_mounts_what_exists(source_root):
    (document,) = documents(source_root / "deploy/container/compose.yaml")
    compose = kubernetes_schema.Compose.model_validate(document)
    for service in compose.services.values():
        for volume in service.volumes:
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (source_root / "deploy/container" / source).exists(), source
            else:
                assert source in compose.volumes
        for needed in service.depends_on:
            assert needed in compose.services
        for port in service.ports:
            assert port.startswith("127.0.0.1:"), "nothing is open to the network unless someone asks"
    assert compose.services["blockswap"].ulimits["memlock"] == -1


def test_prometheus_reads_one_configuration_and_the_targets_of_its_place(source_root):
    shipped = source_root / "deploy/prometheus/prometheus.yml"
    checked = subprocess.run(["promtool", "check", "config", shipped], capture_output=True, text=True)
    assert checked.returncode == 0 and "WARNING" not in checked.stdout, checked.stdout + checked.stderr
    assert "1 rule files found" in checked.stdout, checked.stdout
    (scraped,) = yaml.safe_load(shipped.read_text())["scrape_configs"]
    assert scraped["file_sd_configs"] == [{"files": ["targets.yml"]}]
    for place, settings, key in (("prometheus", "systemd", "http"), ("container", "container", "probes")):
        (group,) = yaml.safe_load((source_root / f"deploy/{place}/targets.yml").read_text())
        (target,) = group["targets"]
        address = tomllib.loads((source_root / f"deploy/{settings}/blockswapd.toml").read_text())[key]
        assert target.split(":")[1] == address.split(":")[1]
    (compose,) = documents(source_root / "deploy/container/compose.yaml")
    mounted = [volume.split(":")[:2] for volume in compose["services"]["prometheus"]["volumes"] if volume.startswith(".")]
    assert mounted == [["../prometheus", "/etc/prometheus"], ["./targets.yml", "/etc/prometheus/targets.yml"]]


def instructions(text):
    """Of a Dockerfile: (word, arguments) in order, lines that go on joined."""
    lines = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]


def test_the_image_runs_without_rights_and_without_a_compiler(source_root):
    parts = instructions((source_root / "deploy/container/Dockerfile").read_text())
    assert all(word in {"ARG", "FROM", "ENV", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK",
                        "ENTRYPOINT", "CMD"} for word, _ in parts)
    starts = [index for index, (word, _) in enumerate(parts) if word == "FROM"]
    assert len(starts) == 2, "one stage builds, the other is shipped"
    runtime = parts[starts[-1]:]
    words = dict(runtime)
    user = words["USER"].split(":")
    assert all(part.isdigit() and int(part) > 0 for part in user), "a number, so that Kubernetes can check it"
    assert "/healthz" in words["HEALTHCHECK"]
    assert "tini" in words["ENTRYPOINT"]
    installed = " ".join(arguments for word, arguments in runtime if word == "RUN")
    assert not re.search(r"\b(g\+\+|gcc|clang|cmake|ninja|build-essential|-dev)\b", installed)
    assert "--no-install-recommends" in installed and "rm -rf" in installed
    manifests = (source_root / "deploy/kubernetes/blockswap.yaml").read_text()
    assert f"runAsUser: {user[0]}" in manifests
    for word, arguments in parts:
        if word == "COPY" and not arguments.startswith("--from"):
            assert (source_root / arguments.split()[0]).exists(), arguments


def test_shell_scripts_are_sound(source_root):
    for path in [*sorted((source_root / "deploy").rglob("*.sh")), *sorted((source_root / "deploy/debian").iterdir()),
                 *sorted((source_root / "deploy/slurm").iterdir())]:
        shell = "sh" if path.read_text().startswith("#!/bin/sh") else "bash"
        checked = subprocess.run([shell, "-n", path], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
        assert path.stat().st_mode & 0o111, f"{path} is not executable"
