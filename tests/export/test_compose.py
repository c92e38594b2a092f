"""The compose files: the health check works, limits come from measurements, the files agree."""

import re
import subprocess

import pytest
from serving import SECONDS, predict_spec

from export.artifacts.deployment import memory_limit, write_deployment

yaml = pytest.importorskip("yaml")
# `report` needs a complete export.
pytestmark = pytest.mark.slow


def service(folder, file="docker-compose.yml"):
    """The only service of a compose file."""
    [found] = yaml.safe_load((folder / file).read_text())["services"].values()
    return found


@pytest.fixture
def written(tmp_path, report):
    """The files of a model with the name `tiny`."""
    base = tmp_path / "tiny"
    base.mkdir()
    write_deployment(base, report)
    return base


def health(check, port):
    """The exit code of a health check whose server listens on another port."""
    kind, *command = check["test"]
    assert kind == "CMD" and command[:2] == ["bash", "-c"] and "/8501" in command[2]
    command[2] = command[2].replace("/8501", f"/{port}")
    return subprocess.run(command, capture_output=True, timeout=SECONDS).returncode


def test_health_check_passes_only_for_the_served_model(written, asked):
    check = service(written)["healthcheck"]
    assert health(check, asked.server.rest_port) == 0
    other = {"test": [part.replace("/models/tiny", "/models/no") for part in check["test"]]}
    assert other != check and health(other, asked.server.rest_port) != 0
    assert health(check, 1) != 0


def test_health_check_fails_while_the_version_is_loading(written):
    """The answer of a server whose only version is still loading."""
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    states = ["LOADING", "AVAILABLE"]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            assert self.path == "/v1/models/tiny"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"model_version_status": [{"state": "%s"}]}' % states[0].encode())

        def log_message(self, *_):
            """Logs nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        check = service(written)["healthcheck"]
        assert health(check, server.server_port) != 0
        del states[0]
        assert health(check, server.server_port) == 0
        server.shutdown()


def test_limits_are_computed_from_the_report(written, report):
    limits = service(written)["deploy"]["resources"]["limits"]
    known = report["deployment"]
    peak, caches = known["memory"]["peak_bytes"], known["limits"]["largest_request_bytes"]
    size = sum(file["bytes"] for file in report["files"].values())
    assert peak > size  # the weights are in memory
    mebibytes = memory_limit(known)
    assert mebibytes % 256 == 0 and 0 <= mebibytes * 2**20 - (2 * peak + caches) < 2**28
    assert limits == {"cpus": "${CORES:-2}", "memory": f"${{MEMORY:-{mebibytes}m}}"}
    assert "--tensorflow_inter_op_parallelism=${CORES:-2}" in service(written)["command"]
    page = (written / "README.md").read_text()
    assert f"Its limit of memory is {mebibytes:,} MiB" in page
    assert f"the peak of {peak / 2**20:,.0f} MiB" in page


def test_memory_limit_too_small_for_the_next_version_is_reported(written, report):
    known = report["deployment"]
    assert write_deployment(written, report) == []
    grown = {**known, "memory": {"peak_bytes": 2**33}}
    lines = write_deployment(written, {**report, "deployment": grown})
    for file, line in zip(("docker-compose.yml", "kubernetes.yaml"), lines, strict=True):
        assert f"limit of memory in {file} must be at least" in line
        text = (written / file).read_text()
        (written / file).write_text(re.sub("memory: ", "memory: 64 # ", text))
    assert write_deployment(written, {**report, "deployment": grown}) == []


def test_the_peak_of_a_loaded_model_is_at_least_its_weights(asked):
    model = asked.server.versions.model(predict_spec())
    weights = sum(path.stat().st_size for path in (model.directory / "variables").iterdir())
    peak = model.worker.peak_bytes
    assert weights < peak <= model.worker.peak_bytes


def test_the_gpu_file_names_the_same_service_and_version(written):
    plain, gpu = service(written), service(written, "docker-compose.gpu.yml")
    files = [yaml.safe_load(path.read_text()) for path in written.glob("docker-compose*.yml")]
    assert [list(file["services"]) for file in files] == [["tiny"], ["tiny"]]
    assert gpu["image"] == f"{plain['image']}-gpu"
    [device] = gpu["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    assert set(gpu) == {"image", "environment", "deploy"}  # everything else is in the first file
