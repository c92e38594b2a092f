"""Fixtures that the tests of servers and clients share."""

import json

import pytest
import tiny
from serving import Asked, add_version

import tfformer
from export import saved_model
from export.artifacts import examples
from export.local_server import LocalServer
from export.serving.versions import one_model


@pytest.fixture(scope="session")
def asked(served_model, short, tmp_path_factory):
    """A server with version 1 under two names, one of them with labels. Tests must not change
    it."""
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


# The run's own examples of its validation.
VALIDATION = {"examples": tiny.sentences(5), "references": tiny.sentences(5, seed=11)}


@pytest.fixture(scope="session")
def deployed_run(tmp_path_factory):
    """The run directory that `deployed` is an export of."""
    translator = tiny.make_translator()
    run = tmp_path_factory.mktemp("exported") / "run"
    search = dict(list(tiny.SERVED.items())[:2])
    tfformer.save(run, translator.model, translator.tokenizer, search, VALIDATION)
    return run


@pytest.fixture(scope="session")
def deployed(deployed_run):
    """A base directory that the complete command has written, with --batching."""
    run, base = deployed_run, deployed_run.parent / "two.words-1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examples, "SAMPLES", 2)  # a plain search in Python is slow
        assert saved_model.main([str(run), str(base), "--batching", "--max-batch-size", "37"]) == 0
    return base


@pytest.fixture(scope="session")
def report(deployed):
    return json.loads((deployed / "1.report.json").read_text())
