"""Fixtures that the tests of servers and clients share."""

import pytest
from serving import Asked, add_version

from export.local_server import LocalServer
from export.serving.versions import one_model


@pytest.fixture(scope="session")
def asked(served_model, short, tmp_path_factory):
    """A server of version 1 under two names, one of them with labels, for who only asks."""
    base = tmp_path_factory.mktemp("asked") / "tiny"
    base.mkdir()
    add_version(served_model / "1", base, 1, warmup=False)
    config = one_model("tiny", base)
    config.model_config_list.config.add().CopyFrom(config.model_config_list.config[0])
    labelled = config.model_config_list.config[1]
    labelled.name, labelled.base_path = "labelled model", str(short.parent)
    labelled.model_version_policy.specific.versions.extend([1, 5])
    labelled.version_labels["stable"] = 1
    labelled.version_labels["next"] = 5
    with LocalServer(config) as server:
        asked = Asked(server)
        yield asked
        asked.close()
