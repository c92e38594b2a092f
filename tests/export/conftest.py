"""Fixtures that the tests of servers and clients share."""

import shutil

import pytest
from serving import Asked, add_version, write_log

from export.local_server import LocalServer
from export.serving.versions import one_model


@pytest.fixture(scope="session")
def asked(served_model, tmp_path_factory):
    """A server of version 1 under two names, one of them with labels, for who only asks."""
    base = tmp_path_factory.mktemp("asked") / "tiny"
    base.mkdir()
    add_version(served_model / "1", base, 1, warmup=False)
    config = one_model("tiny", base)
    config.model_config_list.config.add().CopyFrom(config.model_config_list.config[0])
    labelled = config.model_config_list.config[1]
    labelled.name = "labelled model"
    labelled.model_version_policy.specific.versions.extend([1, 5])
    labelled.version_labels["stable"] = 1
    labelled.version_labels["next"] = 5
    with LocalServer(config) as server:
        asked = Asked(server)
        yield asked
        asked.close()


@pytest.fixture(scope="session")
def short(served_model, tmp_path_factory):
    """The served model with one warm-up request, which a server is soon done with."""
    model = tmp_path_factory.mktemp("short") / "1"
    shutil.copytree(served_model / "1", model)
    write_log(model, ["serving_default"])
    return model
