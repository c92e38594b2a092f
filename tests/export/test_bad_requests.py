"""Malformed requests get the documented status, and the next request is answered."""

import contextlib
import json
import random

import numpy as np
import pytest
import tensorflow as tf
import tiny
from serving import add_version, make_request

from benchmarks import bad_requests, machine
from export.local_server import LocalServer
from export.serving.model import Model
from export.serving.versions import one_model
from export.verification.graph import read_graph

# Together they take minutes.
pytestmark = pytest.mark.slow

LIMITS = tiny.SERVED
CASES = list(bad_requests.cases(**LIMITS))


@pytest.fixture(scope="module")
def base(served_model, tmp_path_factory):
    """The served model without its warm-up requests, so that it loads fast."""
    return add_version(served_model / "1", tmp_path_factory.mktemp("bad"), 1, warmup=False).parent


@pytest.fixture(scope="module")
def server(base):
    with LocalServer(one_model("tiny", base)) as server:
        yield server


@pytest.fixture(scope="module")
def asker(base, server):
    graph = read_graph(base / "1")
    asker = bad_requests.Asker(server.port, server.rest_port, "tiny", graph)
    yield asker
    asker.close()


@pytest.mark.parametrize("case", CASES, ids=[case.what for case in CASES])
def test_each_bad_request_gets_its_status_and_the_next_is_answered(asker, case):
    row = bad_requests.measure(asker, case)
    assert row["status"] == case.status
    assert row["right"]
    assert max(row["seconds"]) < 30


@pytest.mark.parametrize("name", ["beam_width", "length_penalty", "top_p", "max_length"])
def test_error_message_names_the_wrong_option(asker, name):
    wanted = [case for case in CASES if case.what.startswith(f"{name} ")]
    wanted = [case for case in wanted if "of rank" not in case.what]
    assert wanted
    for case in wanted:
        assert f"{name} must be in [" in asker.grpc(case)[1]
        assert f"{name} must be in [" in asker.rest(case)[1]


def test_odd_texts_give_the_same_by_grpc_and_by_rest(asker):
    for what, text in bad_requests.ODD_TEXTS.items():
        case = bad_requests.Case(what, {"text": [text]})
        (_, found), (_, by_rest) = asker.grpc(case), asker.rest(case)
        assert by_rest["translation"] == [found["translation"][0].decode()], what
        assert by_rest["truncated"] == found["truncated"].tolist()
        if what in ("nothing", "blanks"):
            assert found["translation"].tolist() == [b""] and found["score"].tolist() == [0]
        if what.startswith(("1 MB of one", "1 MB of emoji", "8 MB")):
            assert found["truncated"].tolist() == [True]


def test_the_command_prints_the_table(base, tmp_path, monkeypatch, capsys):
    def few(*limits):
        assert limits == (37, 17, 13)
        # The second request is valid, although it is declared as an error.
        return [CASES[0], bad_requests.Case("a text", {"text": [b"a"]})]

    (base / "1.report.json").write_text(json.dumps({"deployment": {"limits": LIMITS}}))
    monkeypatch.setattr(bad_requests, "cases", few)
    assert bad_requests.main([str(base)]) == 1
    output, error = capsys.readouterr()
    assert "| a signature that does not exist | `translate` | FAILED_PRECONDITION | 400 |" in output
    assert "| a text | `serving_default` | OK | 200 **not as documented** |" in output
    assert output.count("\n| ") == 3
    assert error.splitlines()[-1].endswith("error: not as documented: a text")
    assert bad_requests.main([str(tmp_path)]) == 2
    assert "DIRECTORY must be what export.saved_model wrote into" in capsys.readouterr().err


# Random strings.


def fuzz(count, seed=7):
    """Byte strings: random bytes, random characters, damaged real text, repetitions."""
    rng, real = random.Random(seed), [text.encode() for text in tiny.sentences(97)]
    real += list(bad_requests.ODD_TEXTS.values())[:11]

    def characters():
        maximum = rng.choice([0x80, 0x800, 0x10000, 0x110000])
        return "".join(chr(rng.randrange(maximum)) for _ in range(rng.randrange(97)))

    def damaged():
        text = bytearray(rng.choice(real))
        for _ in range(rng.randrange(1, 7)):
            at = rng.randrange(len(text) + 1)
            if rng.random() < 0.5:
                text[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
            else:
                text[at:at] = rng.choice(real)[: rng.randrange(23)]
        return bytes(text)

    def repeated():
        part = rng.choice([rng.randbytes(rng.randrange(1, 5)), damaged()])
        return part * (rng.randrange(1, 20_000) // (len(part) + 1))

    for _ in range(count):
        kind = rng.choices(
            [lambda: rng.randbytes(rng.randrange(211)), characters, damaged, repeated],
            [4, 4, 4, 1],
        )[0]
        text = kind()
        yield text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def feed(model, texts, batch_size=37):
    """Sends all texts; returns the resident memory of the model's process after each batch."""
    texts, sizes = list(texts), []
    for start in range(0, len(texts), batch_size):
        batch = texts[start : start + batch_size]
        found = model.predict(make_request("tiny", batch), timeout=120)
        translations = list(found.outputs["translation"].string_val)
        assert len(translations) == len(batch)
        for translation in translations:
            translation.decode()  # strict
        assert np.isfinite(tf.make_ndarray(found.outputs["score"])).all()
        sizes.append(machine.resident_mib(model.worker.pid))
    return sizes


def test_random_bytes_are_translated_and_memory_stays_flat(base):
    # A new process, because an older one has free memory that would hide growth.
    with contextlib.closing(Model("tiny", 1, base / "1")) as model:
        sizes = feed(model, fuzz(3000))
    early, late = sizes[len(sizes) // 5], max(sizes[-5:])
    # Of about 800 MiB: less than a third of a MiB a batch.
    assert late < 1.02 * early, sizes
