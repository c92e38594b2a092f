"""The files for a deployment are true, work without changes, and keep the user's changes."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import pytest
import tensorflow as tf
import tiny
from google.protobuf import text_format
from paths import ROOT
from serving import SECONDS, Asked, predict_spec
from tensorflow_serving.config import model_server_config_pb2

from export.artifacts.deployment import write_deployment
from export.local_server import LocalServer, curl_line
from export.serving import metrics
from export.serving.batching import BatchingParameters
from export.serving.versions import one_model, read_config
from export.verification.graph import read_files, read_graph, read_variables
from tfformer import Transformer, Translator

# Together they take minutes; the complete command exports once for all.
pytestmark = pytest.mark.slow

LIMITS = tiny.SERVED
NAMES = {
    "README.md", "models.config", "monitoring.config", "docker-compose.yml",
    "docker-compose.gpu.yml", "kubernetes.yaml",
}  # fmt: skip
STARTED_BY = "docker-compose.yml", "kubernetes.yaml"


@pytest.fixture(scope="module")
def config(deployed):
    return read_config(deployed / "models.config")


@pytest.fixture(scope="module")
def batching(deployed):
    return BatchingParameters.parse((deployed / "batching_parameters.txt").read_text())


@pytest.fixture(scope="module")
def batched(config, batching):
    """The local server with the files of the export."""
    with LocalServer(config, batching=batching) as server:
        batched = Asked(server)
        yield batched
        batched.close()


def test_all_files_are_written_without_placeholders_left(deployed):
    files = {path.name for path in deployed.iterdir()}
    assert files == NAMES | {"1", "1.report.json", "batching_parameters.txt"}
    for name in NAMES | {"batching_parameters.txt"}:
        assert not re.search("@[a-z_]+@", (deployed / name).read_text()), name


def test_models_config_is_valid_with_its_commented_options(deployed, config):
    text = (deployed / "models.config").read_text()
    parsed = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    [model] = parsed.model_config_list.config
    assert (model.name, model.base_path) == ("two.words-1", "/models/two.words-1")
    assert model.model_platform == "tensorflow"
    # Here it is the folder that docker-compose.yml mounts.
    assert config.model_config_list.config[0].base_path == str(deployed.resolve())
    assert model.model_version_policy.latest.num_versions == 1
    # The commented part is valid too: labels, and the versions that they name.
    active = "    model_version_policy { latest { num_versions: 1 } }\n"
    assert text.count(active) == 1
    proposed = re.sub(
        r"(?m)^    # (model_version_policy|version_labels)", r"    \1", text.replace(active, "")
    )
    [model] = text_format.Parse(
        proposed, model_server_config_pb2.ModelServerConfig()
    ).model_config_list.config
    assert list(model.model_version_policy.specific.versions) == [1, 2]
    assert dict(model.version_labels) == {"stable": 1, "canary": 2}


def test_monitoring_config_enables_the_path_in_its_comment(deployed):
    comment, line = (deployed / "monitoring.config").read_text().splitlines()
    path = metrics.PATH
    assert path == "/monitoring/prometheus/metrics"
    assert comment.endswith(f"http://HOST:8501{path}")
    assert line == f'prometheus_config {{ enable: true, path: "{path}" }}'


def test_docker_compose_refers_to_existing_files(deployed):
    yaml = pytest.importorskip("yaml")
    [(name, service)] = yaml.safe_load((deployed / "docker-compose.yml").read_text())[
        "services"
    ].items()
    assert name == "two.words-1"
    assert service["image"].startswith("tensorflow/serving:2.")
    assert service["ports"] == [f"${{BIND:-127.0.0.1}}:{port}:{port}" for port in (8500, 8501)]
    [(here, there, mode)] = [volume.split(":") for volume in service["volumes"]]
    assert (here, there, mode) == (".", "/models/two.words-1", "ro")
    options = dict(option.removeprefix("--").split("=", 1) for option in service["command"])
    for option, path in options.items():
        if path.startswith("/models/"):
            assert (deployed / Path(path).relative_to(there)).is_file(), option
    assert options["enable_batching"] == "true"
    assert options["allow_version_labels_for_unavailable_models"] == "true"


def test_docker_compose_without_batching(tmp_path, report):
    write_deployment(tmp_path, report)
    text = (tmp_path / "docker-compose.yml").read_text()
    assert f'volumes: [".:/models/{tmp_path.name}:ro"]' in text
    assert "batching" not in text and not (tmp_path / "batching_parameters.txt").exists()
    assert {path.name for path in tmp_path.iterdir()} == NAMES


@pytest.mark.parametrize(("limit", "rows"), [(7, 7), (32, 32), (256, 32)])
def test_no_batch_has_more_rows_than_the_model_takes(tmp_path, report, limit, rows):
    known = report["deployment"]
    known = {**known, "limits": {**known["limits"], "max_batch_size": limit}}
    write_deployment(tmp_path, {**report, "deployment": known}, batching=True)
    text = (tmp_path / "batching_parameters.txt").read_text()
    assert BatchingParameters.parse(text).max_batch_size == rows


def test_user_changes_are_kept_and_the_generated_page_is_rewritten(tmp_path, report):
    write_deployment(tmp_path, report, batching=True)
    mine = [path for path in tmp_path.iterdir() if path.name != "README.md"]
    assert len(mine) == len(NAMES)
    for path in mine:
        path.write_text("# mine")
    page = tmp_path / "README.md"
    written = page.read_text()
    page.write_text(written.splitlines()[0] + "\nold")
    write_deployment(tmp_path, report, batching=True)
    assert [path.read_text() for path in mine] == ["# mine"] * len(NAMES)
    assert page.read_text() == written
    for own in (b"# My page\n" + written.encode(), "# Größe".encode("latin-1"), b""):
        page.write_bytes(own)
        write_deployment(tmp_path, report, batching=True)
        assert page.read_bytes() == own


def test_xla_option_is_in_docker_compose_and_the_page(tmp_path, report):
    assert write_deployment(tmp_path, report, xla=True) == []
    assert "- --xla_cpu_compilation_enabled=true" in (tmp_path / "docker-compose.yml").read_text()
    page = (tmp_path / "README.md").read_text()
    assert "tfformer serve DIRECTORY --xla" in page and "a stock" not in page


@pytest.mark.parametrize(("reference", "prefix"), [("2031-07-04", "2031-"), ("Ein Haus", "Ein")])
def test_prefix_example_is_the_beginning_of_the_reference(tmp_path, report, reference, prefix):
    known = {**report["deployment"], "sample_reference": reference}
    write_deployment(tmp_path, {**report, "deployment": known})
    assert f'"prefix": ["{prefix}"]' in (tmp_path / "README.md").read_text()


def test_kept_files_that_do_not_match_the_new_options_are_reported(tmp_path, report):
    known = report["deployment"]
    small = {**known, "limits": {**known["limits"], "max_batch_size": 7}}
    assert write_deployment(tmp_path, report) == []
    lines = write_deployment(tmp_path, report, batching=True)
    for file, line in zip(STARTED_BY, lines, strict=True):
        assert f"{file} must have --enable_batching" in line
        (tmp_path / file).unlink()
    assert write_deployment(tmp_path, report, batching=True) == []
    [line] = write_deployment(tmp_path, {**report, "deployment": small}, batching=True)
    assert "max_batch_size in batching_parameters.txt must be at most 7" in line
    for file, line in zip(STARTED_BY, write_deployment(tmp_path, report), strict=True):
        assert f"{file} must not have --enable_batching" in line


def test_sample_text_is_quoted_for_the_shell(tmp_path, report):
    text = 'it\'s @name@ and $HOME `x` "y"'
    changed = {**report, "deployment": {**report["deployment"], "sample": text}}
    write_deployment(tmp_path, changed)
    [line] = [x for x in (tmp_path / "README.md").read_text().splitlines() if x.startswith("echo ")]
    done = subprocess.run(
        ["sh", "-c", line.partition(" | ")[0]], capture_output=True, text=True, check=True
    )
    assert done.stdout == text + "\n"


def ask_all(page, server):
    """Runs each curl line of a page against a server; returns their number."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("curl ")]
    for line in lines:
        local = line.replace("localhost:8501", f"127.0.0.1:{server.rest_port}")
        assert local != line
        done = subprocess.run(local, shell=True, capture_output=True, text=True, timeout=SECONDS)
        answer = json.loads(done.stdout)
        assert {"predictions", "outputs", "model_version_status"} & set(answer), (line, answer)
        assert "error" not in answer, (line, answer)
    return len(lines)


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl")
def test_every_curl_line_of_the_page_works(deployed, batched):
    # One for each signature, and one for the status.
    signatures = read_graph(deployed / "1").signatures
    assert ask_all(deployed / "README.md", batched.server) == len(signatures) + 1


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl")
def test_every_curl_line_of_a_page_without_batching_works(asked, report, tmp_path):
    base = tmp_path / "tiny"
    base.mkdir()
    graph = asked.server.versions.model(predict_spec()).graph.to_dict()
    write_deployment(base, {**report, "graph": graph, "directory": str(base / "1")})
    assert ask_all(base / "README.md", asked.server) == len(graph["signatures"]) + 1
    [model] = read_config(base / "models.config").model_config_list.config
    assert (model.name, model.base_path) == ("tiny", str(base.resolve()))


def test_example_requests_use_the_validation_sample(deployed, batched):
    text, reference = tiny.sentences(5)[0], tiny.sentences(5, seed=11)[0]
    page = (deployed / "README.md").read_text()
    asked = [json.loads(shlex.split(line)[2]) for line in page.splitlines() if "curl -d" in line]
    said = {body.get("signature_name"): body.get("inputs") for body in asked}
    assert asked[0] == {"instances": [text]}
    assert said["score"] == said["align"] == {"source": [text], "target": [reference]}
    assert said["complete"] == {"text": [text], "prefix": [reference.split()[0]]}
    # The line that the local server prints works too.
    [_, _, body, url] = shlex.split(curl_line(batched.server, "two.words-1"))
    assert json.loads(body) == asked[0] and url.endswith("/v1/models/two.words-1:predict")


def test_the_client_line_of_the_page_works(deployed, batched):
    page = (deployed / "README.md").read_text()
    [line] = [line for line in page.splitlines() if line.startswith("echo ")]
    line = line.replace("tfformer", f"{sys.executable} -m tfformer")
    url = f"--url http://127.0.0.1:{batched.server.rest_port}"
    done = subprocess.run(f"{line} {url}", shell=True, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("\n") == 1, done.stderr


def test_batching_export_has_only_batchable_signatures(deployed):
    signatures = read_graph(deployed / "1").signatures
    assert set(signatures) == {
        "serving_default", "translate_document", "score", "complete", "align"
    }  # fmt: skip
    for signature in signatures.values():
        assert {(x.dtype, x.shape) for x in signature.inputs.values()} == {("string", (None,))}
        for output in signature.outputs.values():
            assert output.shape is None or len(output.shape) >= 1, output
        assert not signature.defaults


# The numbers.


def test_limits_and_sizes_in_the_report_match_the_model(deployed, report):
    known, version = report["deployment"], deployed / "1"
    limits = known["limits"]
    assert {name: limits[name] for name in LIMITS} == LIMITS
    assert limits["max_characters"] == 17 * 16
    assert limits["max_document_characters"] == 17 * 16 * 64
    assert report["directory"] == str(version)
    assert report["files"] == read_files(version)
    assert report["weights"] == read_variables(version, read_graph(version))
    assert set(known["latency"]["milliseconds"]) == {"1", "8", "32"}
    assert min(known["latency"]["milliseconds"].values()) > 0
    page = (deployed / "README.md").read_text()
    assert "| rows of a request | 37; more are INVALID_ARGUMENT |" in page
    assert f"| parameters, as stored | {report['weights']['parameters']:,} |" in page
    assert "tokens of a source; of a translation | 17; 13;" in page
    assert f"| checks passed | {len(report['checks'])} |" in page


def test_batch_size_limit_is_enforced_when_served(batched):
    texts = ["a"] * 38
    status, _ = batched.ask("/v1/models/two.words-1:predict", {"instances": texts[:32]})
    assert status == 200
    # With batching, max_batch_size in batching_parameters.txt is smaller.
    status, found = batched.ask("/v1/models/two.words-1:predict", {"instances": texts[:33]})
    assert status == 400 and "maximum input batch size 32" in found["error"]


# A model that computes in bfloat16.


def test_a_model_of_mixed_precision_is_exported_in_float32(tmp_path):
    plain = tiny.make_translator(**LIMITS)
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    try:
        model = Transformer(plain.model.config)
        model.set_weights(plain.model.get_weights())
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    assert model.compute_dtype == "bfloat16"
    mixed = Translator(model, plain.tokenizer, **LIMITS)
    names = ["serving_default", "score"]
    tiny.save_version(mixed, tmp_path / "tiny", 1, names)
    with LocalServer(one_model("tiny", tmp_path / "tiny")) as server:
        asked = Asked(server)
        texts = tiny.sentences(17)
        assert asked.translate(*texts) == plain.translate(texts)
        asked.close()
    reader = tf.train.load_checkpoint(str(tmp_path / "tiny" / "1" / "variables" / "variables"))
    types = set(reader.get_variable_to_dtype_map().values())
    assert tf.float32 in types and not {tf.bfloat16, tf.float16} & types
