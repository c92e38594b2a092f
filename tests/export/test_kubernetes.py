"""The manifest for a cluster agrees with the compose file and models.config."""

import re

import pytest
from serving import predict_spec

from export.artifacts.deployment import cluster_label, write_deployment
from export.serving.versions import read_config

yaml = pytest.importorskip("yaml")
# `report` needs a complete export.
pytestmark = pytest.mark.slow
QUANTITY = re.compile(r"\d+(Mi)?")
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@pytest.fixture(scope="module")
def written(tmp_path_factory, report):
    base = tmp_path_factory.mktemp("cluster") / "Two.words_1"
    base.mkdir()
    write_deployment(base, report, batching=True, xla=True)
    return base


@pytest.fixture(scope="module")
def manifest(written):
    """{kind: object}, including the objects in comments."""
    text = (written / "kubernetes.yaml").read_text()
    proposed = text[text.index("# ---") :]
    text = text.replace(proposed, re.sub("(?m)^# ", "", proposed))
    return {found["kind"]: found for found in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def pod(manifest):
    return manifest["Deployment"]["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def compose(written):
    [found] = yaml.safe_load((written / "docker-compose.yml").read_text())["services"].values()
    return found


def options(arguments):
    return dict(argument.removeprefix("--").split("=", 1) for argument in arguments)


def test_server_container_equals_the_compose_service(pod, compose):
    server = pod["containers"][0]
    assert server["image"] == compose["image"]
    ours, theirs = options(server["args"]), options(compose["command"])
    assert ours.pop("tensorflow_inter_op_parallelism") == "2"
    assert theirs.pop("tensorflow_inter_op_parallelism") == "${CORES:-2}"
    assert ours == theirs
    assert ours["enable_batching"] == ours["xla_cpu_compilation_enabled"] == "true"
    ports = {f"{port['containerPort']}:{port['containerPort']}" for port in server["ports"]}
    assert {f"${{BIND:-127.0.0.1}}:{port}" for port in ports} == set(compose["ports"])


def test_resources_equal_those_of_compose(pod, compose):
    server = pod["containers"][0]
    limits = server["resources"]["limits"]
    allowed = compose["deploy"]["resources"]["limits"]
    # The same for all containers, so that the pod is evicted last.
    for container in pod["containers"]:
        assert container["resources"]["limits"] == container["resources"]["requests"]
    assert all(QUANTITY.fullmatch(value) for value in limits.values())
    assert allowed["cpus"] == f"${{CORES:-{limits['cpu']}}}"
    assert allowed["memory"] == f"${{MEMORY:-{limits['memory'].removesuffix('Mi')}m}}"


def test_paths_match_models_config(written, pod):
    server = pod["containers"][0]
    [volume] = pod["volumes"]
    [mount] = server["volumeMounts"]
    assert mount["name"] == volume["name"] and mount["readOnly"]
    text = (written / "models.config").read_text()
    assert f'base_path: "{mount["mountPath"]}"' in text
    [model] = read_config(written / "models.config").model_config_list.config
    assert mount["mountPath"] == f"/models/{model.name}"
    for option, path in options(server["args"]).items():
        if path.startswith("/"):
            assert (written / path.removeprefix(mount["mountPath"] + "/")).is_file(), option
    monitored = re.search('path: "(.*)"', (written / "monitoring.config").read_text())[1]
    assert manifest_annotations(written)["prometheus.io/path"] == monitored


def manifest_annotations(written):
    found = yaml.safe_load_all((written / "kubernetes.yaml").read_text())
    deployment = next(one for one in found if one["kind"] == "Deployment")
    return deployment["spec"]["template"]["metadata"]["annotations"]


def test_versions_are_copied_through_the_second_container(written, manifest, pod):
    server, files = pod["containers"]
    [mount], [of_server] = files["volumeMounts"], server["volumeMounts"]
    assert {**mount, "readOnly": True} == of_server
    comment = (written / "kubernetes.yaml").read_text().partition("apiVersion")[0]
    assert f'"$POD:{mount["mountPath"]}/.new" -c {files["name"]}' in comment
    # A second pod could not mount the claim on another node.
    assert manifest["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert manifest["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}


def test_grpc_is_open_to_labelled_pods_alone(manifest, pod):
    """Any client that reaches it can make a stock server load another SavedModel."""
    policy = manifest["NetworkPolicy"]["spec"]
    assert policy["podSelector"] == manifest["Deployment"]["spec"]["selector"]
    allowed = {rule["ports"][0]["port"]: rule["from"] for rule in policy["ingress"]}
    assert allowed[8501] == [{"podSelector": {}}]  # of this namespace
    [grpc] = allowed[8500]
    assert grpc["podSelector"]["matchLabels"]
    assert policy["policyTypes"] == ["Ingress"]


def test_containers_run_without_privileges(pod):
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    for container in pod["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["automountServiceAccountToken"] is False


def test_name_that_looks_like_another_yaml_type_stays_a_string(tmp_path, report):
    for name in ("no", "null", "1e3"):
        (tmp_path / name).mkdir()
        write_deployment(tmp_path / name, report)
        [found] = yaml.safe_load((tmp_path / name / "docker-compose.yml").read_text())["services"]
        assert found == name
        for made in yaml.safe_load_all((tmp_path / name / "kubernetes.yaml").read_text()):
            assert made["metadata"]["name"] == cluster_label(name)


def test_names_labels_and_ports_agree(manifest, pod):
    label = cluster_label("Two.words_1")
    assert label == "two-words-1"
    assert {found["metadata"]["name"] for found in manifest.values()} == {label}
    app, spec = {"app": label}, manifest["Deployment"]["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"] == app
    assert manifest["Service"]["spec"]["selector"] == app
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == label
    server = pod["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    assert ports == {"grpc": 8500, "rest": 8501}
    for port in manifest["Service"]["spec"]["ports"]:
        assert ports[port["targetPort"]] == port["port"] and port["name"] == port["targetPort"]
    target = manifest["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert target == {"apiVersion": "apps/v1", "kind": "Deployment", "name": label}


@pytest.mark.parametrize(
    "name", ["dates", "Two.words_1", "3x", "a" * 63 + "-b", "A.-_b-", "9-.", "7"]
)
def test_cluster_label_is_a_valid_dns_label(name):
    assert DNS_LABEL.fullmatch(cluster_label(name)), cluster_label(name)


def test_probes_succeed_only_for_the_served_model(pod, asked):
    """Kubernetes takes 200 to 399 as success."""
    server = pod["containers"][0]
    probes = {kind: server[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")}
    for kind, probe in probes.items():
        get = probe["httpGet"]
        assert get["port"] == "rest", kind
        for model, expected in (("tiny", 200), ("none", 404)):
            status, _ = asked.ask(get["path"].replace("/Two.words_1", f"/{model}"))
            assert status == expected, (kind, model)
    assert asked.server.versions.model(predict_spec())
    waits = probes["startup"]["periodSeconds"] * probes["startup"]["failureThreshold"]
    assert waits == 300 and pod["terminationGracePeriodSeconds"] > 10
