"""Versions are added and removed, and configurations name them."""

import os
import re
import shutil
import signal
import threading
import time
import types
from pathlib import Path

import grpc
import pytest
import tiny
from google.protobuf import text_format
from serving import (
    SECONDS,
    Asked,
    add_version,
    flip,
    flip_weights,
    make_request,
    predict_spec,
    refused,
    wait_until,
    write_log,
)
from tensorflow_serving.apis import model_management_pb2
from tensorflow_serving.apis.get_model_status_pb2 import ModelVersionStatus
from tensorflow_serving.config import model_server_config_pb2

from export.capi.library import CODES, ServingError
from export.local_server import LocalServer
from export.serving.versions import Versions, one_model, read_config
from export.verification.graph import UsageError
from export.verification.warmup import WARMUP_FILE, read_warmup

BROKEN = {
    "no variables": (lambda model: shutil.rmtree(model / "variables"), "Could not find variable"),
    "a byte of the graph": (lambda model: flip(model / "saved_model.pb", 0), "saved_model.pb"),
    "a byte of the weights": (flip_weights, "DATA_LOSS"),
    "a warm-up request that fails": (
        lambda model: write_log(model, ["serving_default", "none"]),
        'warm-up request 1: .*"none" not found',
    ),
    "a byte of the warm-up": (lambda model: flip(model / WARMUP_FILE), "DATA_LOSS: .*warmup"),
    "no graph": (lambda model: (model / "saved_model.pb").unlink(), "saved_model.pb"),
}


@pytest.fixture(scope="module")
def changing(short, tmp_path_factory):
    """A server with its own base directory, which has version 1."""
    base = tmp_path_factory.mktemp("changing") / "tiny"
    base.mkdir()
    shutil.copytree(short, base / "1")
    with LocalServer(one_model("tiny", base)) as server:
        asked = Asked(server)
        asked.base = base
        yield asked
        asked.close()


def refuse(changing, make, match):
    """Checks that a new version made by `make` is refused, and that version 1 is still served."""
    number = max(changing.states()) + 1
    beside = changing.base / f"partial-{number}"
    make(beside)
    folder = beside.rename(changing.base / str(number))
    try:
        wait_until(lambda: changing.states().get(number, [""])[0] == "END")
        state, code, message = changing.states()[number]
        assert code != 0 and re.search(match, f"{CODES[code]}: {message}"), (CODES[code], message)
        assert changing.served_version() == 1
        _, found = changing.ask(f"/v1/models/tiny/versions/{number}")
        assert found["model_version_status"][0]["status"]["error_message"] == message
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize("what", BROKEN)
def test_broken_version_is_refused_and_the_old_one_stays_served(changing, short, what):
    damage, match = BROKEN[what]

    def make(beside):
        shutil.copytree(short, beside)
        damage(beside)

    refuse(changing, make, match)


@pytest.mark.slow
def test_new_version_is_served_without_a_gap_and_removal_rolls_back(changing, short):
    number = max(changing.states()) + 1
    old = changing.server.versions.model(predict_spec()).worker.pid
    stop, failures, seen = threading.Event(), [], []

    def ask():
        while not stop.is_set():
            try:
                seen.append(changing.served_version())
            except grpc.RpcError as error:
                failures.append(error)
            time.sleep(0.05)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    folder = add_version(short, changing.base, number)
    try:
        wait_until(lambda: changing.states()[1][0] == "END")
        assert changing.states()[number] == ("AVAILABLE", 0, "")
        assert changing.states()[1] == ("END", 0, "")
        wait_until(lambda: not Path("/proc", str(old)).exists())  # its memory is free again
        wait_until(lambda: seen[-1] == number)
        folder.rename(folder.with_name(f"{number}.withdrawn"))
        wait_until(lambda: changing.states()[number][0] == "END")
        wait_until(lambda: seen[-1] == 1)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert changing.states()[1] == ("AVAILABLE", 0, "")


def test_missing_base_does_not_stop_the_refresh_of_other_models(tmp_path):
    """Other models and other versions are not affected, in any order."""
    config, names = one_model("m0", tmp_path / "m0"), [f"m{n}" for n in range(5)]
    for name in names[1:]:
        config.MergeFrom(one_model(name, tmp_path / name))
    for name in names:
        (tmp_path / name).mkdir()
    versions = Versions(config)
    (tmp_path / "m2").rmdir()
    for name in set(names) - {"m2"}:
        (tmp_path / name / "7").symlink_to("7")
    with pytest.raises(FileNotFoundError):
        versions.refresh()
    for name in set(names) - {"m2"}:
        [status] = versions.status(predict_spec(name)).model_version_status
        assert (status.version, status.state) == (7, ModelVersionStatus.State.END)
        assert CODES[status.status.error_code] == "INTERNAL"
    versions.close()


class Loaded:
    """Replaces a `Model`: its folder's answer to loading; then `after` is called."""

    after, warmup_requests = staticmethod(lambda: None), ()

    def __init__(self, name, version, directory, **options):
        self.directory, self.closed = directory, False
        self.worker = types.SimpleNamespace(alive=True, beat=lambda: None)
        self.said = (directory / "saved_model.pb").read_text()
        if self.said == "broken":
            raise ServingError("INTERNAL", "it is broken")
        Loaded.after()

    def close(self, deadline=None):
        self.closed = True


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """(`Versions`, a function that writes a version, one that returns what is served)."""

    def put(number, said):
        beside = tmp_path / f"partial-{said}"
        beside.mkdir()
        (beside / "saved_model.pb").write_text(said)
        if (tmp_path / str(number)).exists():
            (tmp_path / str(number)).rename(tmp_path / f"before-{said}")
        beside.rename(tmp_path / str(number))

    monkeypatch.setattr("export.serving.versions.Model", Loaded)
    monkeypatch.setattr(Loaded, "after", Loaded.after)
    put(1, "first")
    versions = Versions(one_model("tiny", tmp_path))
    return versions, put, lambda: versions.model(predict_spec())


def test_a_folder_that_changes_while_it_is_loaded_is_loaded_again(loaded, monkeypatch):
    """What was loaded may be half of each."""
    versions, put, served = loaded
    before = served()

    def replace():
        monkeypatch.setattr(Loaded, "after", lambda: None)
        put(2, "third")

    monkeypatch.setattr(Loaded, "after", replace)
    put(2, "second")
    versions.refresh()
    state = versions.status(predict_spec()).model_version_status[0]
    assert (state.version, state.state) == (2, ModelVersionStatus.State.END)
    assert "changed while it was loaded" in state.status.error_message
    assert served() is before and not before.closed
    versions.refresh()
    assert served().said == "third" and before.closed


def test_fallback_version_is_reloaded_when_its_worker_dies(loaded):
    versions, put, served = loaded
    put(2, "broken")
    versions.refresh()
    before = served()
    assert before.said == "first"
    versions.refresh()
    assert served() is before
    before.worker.alive = False
    versions.refresh()
    assert served() is not before and served().said == "first" and before.closed


@pytest.mark.slow
def test_killed_worker_is_unavailable_and_restarted(changing):
    model = changing.server.versions.model(predict_spec())
    document = ". ".join([" ".join(text.capitalize() for text in tiny.sentences(40))] * 20)
    request = make_request("tiny", [document] * 37, "translate_document")
    running = changing.prediction.Predict.future(request, timeout=SECONDS)
    wait_until(lambda: model._running)
    os.kill(model.worker.pid, signal.SIGKILL)
    with refused("UNAVAILABLE", "was killed by SIGKILL"):
        running.result(SECONDS)

    def served():
        try:
            return changing.translate("a house")
        except grpc.RpcError as error:
            assert error.code().name == "UNAVAILABLE"  # what a client makes again
            return None

    assert wait_until(served)
    assert changing.server.versions.model(predict_spec()).worker.pid != model.worker.pid


@pytest.mark.slow
def test_the_configuration_is_reloaded(changing, short):
    request = model_management_pb2.ReloadConfigRequest()
    request.config.CopyFrom(one_model("tiny", changing.base))
    other = request.config.model_config_list.config.add()
    other.CopyFrom(request.config.model_config_list.config[0])
    other.name, other.base_path = "other", str(short.parent)
    response = changing.service.HandleReloadConfigRequest(request, timeout=SECONDS)
    assert response.status.error_code == 0
    assert changing.translate("a house", model="other") == changing.translate("a house")
    other.base_path = str(short / "none")
    with refused("INVALID_ARGUMENT", "a base_path that is a folder"):
        changing.service.HandleReloadConfigRequest(request, timeout=SECONDS)
    assert changing.translate("a house", model="other")
    other.name, other.base_path = "empty", str(short)  # there is no version in it
    with refused("UNKNOWN", "Some models did not become available: {empty (no version)}"):
        changing.service.HandleReloadConfigRequest(request, timeout=SECONDS)
    del request.config.model_config_list.config[1]
    changing.service.HandleReloadConfigRequest(request, timeout=SECONDS)
    with refused("NOT_FOUND"):
        changing.translate("a house", model="other")
    assert changing.states("other")[1][0] == "END"
    with refused("INVALID_ARGUMENT", "Only ModelConfigList is currently supported"):
        changing.service.HandleReloadConfigRequest(model_management_pb2.ReloadConfigRequest())
    assert changing.translate("a house")


@pytest.mark.slow
def test_warmup_requests_are_replayed(changing, short, served_model):
    model = changing.server.versions.model(predict_spec())
    assert model.warmup_requests == read_warmup(short) != []
    # An export brings one a signature, and more of serving_default.
    assert len(read_warmup(served_model / "1")) > 8


# Configurations.


def test_invalid_configuration_is_refused(served_model, tmp_path):
    empty = model_server_config_pb2.ModelServerConfig()
    with pytest.raises(UsageError, match=r"at least one, got \[\]"):
        Versions(empty)
    config = one_model("tiny", tmp_path / "none")
    for base_path in (str(tmp_path / "none"), "", "x" * 5000, "\0"):
        config.model_config_list.config[0].base_path = base_path
        with pytest.raises(UsageError, match="got name 'tiny' and base_path"):
            Versions(config)
    config = one_model("tiny", served_model)
    config.model_config_list.config[0].model_platform = "tflite"
    with pytest.raises(UsageError, match="model_platform of 'tiny' must be 'tensorflow'"):
        Versions(config)
    config = one_model("tiny", served_model)
    config.model_config_list.config.add().CopyFrom(config.model_config_list.config[0])
    with pytest.raises(UsageError, match="names of their own"):
        Versions(config)


def test_container_base_path_is_mapped_to_the_mounted_folder(tmp_path):
    def read(base_path):
        path = tmp_path / "dates" / "models.config"
        path.parent.mkdir(exist_ok=True)
        config = one_model("dates", base_path)
        path.write_text(text_format.MessageToString(config))
        return read_config(path).model_config_list.config[0].base_path

    assert read("/models/dates") == str(tmp_path.resolve() / "dates")
    assert read("/models/other") == str(tmp_path.resolve() / "other")
    assert read("/modelsx/dates") == "/modelsx/dates"
    assert read("models/dates") == "models/dates"
    assert read(str(tmp_path)) == str(tmp_path)


def test_unreadable_configuration_file_is_refused(tmp_path):
    (tmp_path / "a").write_text("model_config_list { names: 'x' }")
    (tmp_path / "b").write_bytes(b"\xff")
    for name in ("a", "b", "none"):
        with pytest.raises(UsageError, match="the models' configuration cannot be read"):
            read_config(tmp_path / name)
