"""`export.saved_model --quick` loads the export, compares nothing, and says so everywhere."""

import json

import pytest

from export import saved_model
from export.artifacts import deployment, forms
from export.verification import compare, families, serve
from tfformer.service.translation import serving_default

SIGNATURES = {"serving_default", "score"}


def refuse(*_, **__):
    raise AssertionError("--quick compares nothing")


@pytest.fixture(scope="module")
def quick(deployed_run, tmp_path_factory):
    """(the base directory of a quick export, what the command printed)."""
    base = tmp_path_factory.mktemp("quick") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deployment, "LATENCY_BATCHES", (1,))
        patch.setattr(compare, "compare_in_process", refuse)
        patch.setattr(serve, "serve_in_python", refuse)
        patch.setattr(families, "COMPARISONS", {})
        words = [str(deployed_run), str(base), "--quick", "--signatures", *SIGNATURES]
        assert saved_model.main(words) == 0
    return base


@pytest.mark.slow
def test_each_signature_is_served_once_and_not_compared(quick):
    report = json.loads((quick / "1.report.json").read_text())
    assert report["passed"] and set(report["served"]) == SIGNATURES
    assert all(len(answers) == 1 and answers[0] for answers in report["served"].values())
    checks = {check["name"]: check["detail"] for check in report["checks"]}
    assert {f"served: {name}" for name in SIGNATURES} <= set(checks)
    assert {"no Python ops", "no XLA", "no custom ops", "weights", "warm-up"} <= set(checks)
    assert {checks[f"served: {name}"] for name in SIGNATURES} == {"1 requests"}
    assert not [name for name in checks if "agreement" in name or "in process" in name]


@pytest.mark.parametrize("options", [[], ["--batching"]])
def test_error_names_a_signature_that_cannot_be_written(deployed_run, tmp_path, capsys, options):
    name = "beam_search_ids" if options else "none"
    words = [str(deployed_run), str(tmp_path / "out"), "--signatures", name, *options]
    assert saved_model.main(words) == 2
    known = "--signatures must be of serving_default, "
    error = capsys.readouterr().err
    assert known in error and error.endswith(f"got {name}\n") and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_report_and_page_list_the_skipped_comparisons(quick, deployed):
    report = json.loads((quick / "1.report.json").read_text())
    loader, *others = report["not_compared"]
    assert loader.endswith("tf.saved_model.load") and others == list(saved_model.NOT_COMPARED)
    page = (quick / "README.md").read_text()
    assert "exported with `--quick`" in page
    for what in report["not_compared"]:
        assert f"\n- {what}\n" in page
    whole = json.loads((deployed / "1.report.json").read_text())
    assert whole["not_compared"] == [] and "--quick" not in (deployed / "README.md").read_text()


@pytest.mark.slow
def test_deployment_files_are_the_same_as_of_a_full_export(quick, deployed):
    def names(base):
        return {path.name for path in base.iterdir()} - {"batching_parameters.txt"}

    assert names(quick) == names(deployed)


@pytest.mark.slow
def test_signature_that_fails_is_not_published(deployed_run, tmp_path, monkeypatch, capsys):
    def fail(path, graph, feeds, report, xla, warmup):
        assert all(len(batch) == 1 for batch in feeds.values())
        report.add("served: serving_default", ["1 of 1 requests: INTERNAL: x"], "")
        return report.served

    monkeypatch.setattr(serve, "serve", fail)
    monkeypatch.setattr("tfformer.service.translator.SIGNATURES", (serving_default,))
    base = tmp_path / "tiny"
    assert saved_model.main([str(deployed_run), str(base), "--quick"]) == 1
    assert "not exported: served: serving_default: 1 of 1" in capsys.readouterr().err
    assert list(base.iterdir()) == []


def test_fastest_form_is_reported_per_batch_size():
    known = {"latency": {"milliseconds": {"1": 7.0, "8": 5.0}}}
    assert list(forms.compared(known)) == []
    known["other_forms_milliseconds"] = {
        "xla": {"1": 3.5, "8": 6.0},
        "usual": {"1": 3.7, "8": 4.9},
    }
    one, eight, last = forms.compared(known)
    each = "as exported 7 ms, --xla 3.5 ms, --no-low-latency 3.7 ms"
    assert one == f"a request of 1: {each}; fastest here: --xla"
    assert eight.endswith("fastest here: as exported") and "a server of your own" in last


@pytest.mark.parametrize("form", ["--xla", "--low-latency"])
def test_compare_forms_is_refused_with_xla_or_low_latency(tmp_path, capsys, form):
    (tmp_path / "config.json").touch()  # of a run that is not read before
    words = [str(tmp_path), str(tmp_path / "out"), form, "--compare-forms"]
    assert saved_model.main(words) == 2
    assert f"--compare-forms cannot be given with {form}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_compare_forms_measures_all_forms(deployed_run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(deployment, "LATENCY_BATCHES", (1, 2))
    monkeypatch.setattr("tfformer.service.translator.SIGNATURES", (serving_default,))
    base = tmp_path / "tiny"
    words = [str(deployed_run), str(base), "--quick", "--compare-forms"]
    assert saved_model.main(words) == 0
    report = json.loads((base / "1.report.json").read_text())
    found = report["deployment"]["other_forms_milliseconds"]
    assert {form: set(took) for form, took in found.items()} == {
        "xla": {"1", "2"},
        "usual": {"1", "2"},
    }
    assert {check["name"] for check in report["checks"]} >= {"no XLA"}
    assert "a request of 2: " in capsys.readouterr().out
    assert [path.name for path in base.iterdir() if path.is_dir()] == ["1"]
