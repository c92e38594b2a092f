"""Each command reports a wrong path before it imports TensorFlow, which takes seconds."""

import json
import os
import subprocess
import sys

from paths import ROOT

# (arguments, exit code, words of the message). The folder has a run, a folder and two files.
CASES = [
    ("export.verify typo", 2, "directory must exist, got 'typo'"),
    ("export.verify saved --requests typo", 2, "--requests must be a JSON file, 'typo'"),
    ("export.translate typo", 2, "directory must exist, got 'typo'"),
    ("export.translate_files typo out a.txt", 2, "directory must exist, got 'typo'"),
    ("export.translate_files saved out typo", 2, "FILE must be a file, got typo"),
    ("export.saved_model typo out", 1, "typo is no directory"),
    ("export.saved_model run a.txt", 1, "directory must be a folder, got the file 'a.txt'"),
    ("export.saved_model run out --rerank typo", 1, "typo is no directory"),
    ("export.saved_model run out --ensemble typo", 1, "typo is no directory"),
    ("export.saved_model run out --shortlist typo", 1, "cannot read typo: No such file"),
    ("export.keras_hub folder/typo out", 1, "PRESET must be a folder, or a preset in Ker"),
    ("export.keras_hub folder a.txt", 1, "directory must be a folder, got the file 'a.txt'"),
    ("export.ctranslate2 typo out", 1, "typo is no directory"),
    ("export.ctranslate2 run folder", 1, "directory must not exist yet, got folder"),
    ("export.local_server typo", 2, "a base_path that is a folder, got name 'typo'"),
    ("export.local_server --config typo", 2, "configuration cannot be read: typo: No such file"),
    ("export.local_server saved --batching typo", 2, "--batching must be a batching_para"),
    ("export.page typo x.html", 1, "typo is no directory"),
    ("export.page run typo/x.html", 1, "FILE must be in a folder that exists, got typo/x.html"),
    ("export.page run folder", 1, "FILE must be a file, got the folder folder"),
    ("export.playground typo", 2, "a base_path that is a folder, got name 'typo'"),
    ("export.client --model m --token-file typo", 2, "the token cannot be read"),
    ("training.average run typo --out new", 1, "typo is no directory"),
    ("training.average run run --out folder", 1, "--out must not exist yet, got folder"),
    ("training.compare run run --source typo", 1, "cannot read typo: No such file"),
    ("training.compare run run --recipe typo.py", 2, "existing Python file or a name, got typo.py"),
    ("training.diversify --source typo --target a.txt --out o", 1, "cannot read typo: No such"),
    (
        "training.diversify --source a.txt --target a.txt --forward typo --out o",
        1,
        "typo is no directory",
    ),
    ("training.evaluate run --source typo", 1, "cannot read typo: No such file"),
    ("training.evaluate run --source folder", 1, "cannot read folder: Is a directory"),
    ("training.evaluate run --source a.txt --target typo", 1, "cannot read typo: No such file"),
    ("training.evaluate run --text typo", 1, "cannot read typo: No such file"),
    ("training.evaluate run --recipe typo.py", 2, "existing Python file or a name, got typo.py"),
    (
        "training.evaluate run --source a.tsv --output typo/x",
        1,
        "--output: typo is not",
    ),
    ("training.evaluate run --source a.tsv --backward typo", 1, "typo is no directory"),
    ("training.import_hf typo new", 1, "FOLDER must be a folder or a name on the hub"),
    ("training.import_marian typo new", 1, "FOLDER must be a folder or a name on the hub"),
    ("training.import_marian folder run", 1, "RUN must not exist yet, got run"),
    ("training.import_opennmt typo new --vocabulary a.txt", 1, "typo must be a model directory"),
    ("training.import_opennmt folder new --vocabulary typo", 1, "cannot read typo: No such file"),
    ("training.import_opennmt folder run --vocabulary a.txt", 1, "RUN must not exist yet, got run"),
    ("training.inspect typo", 1, "cannot read typo: No such file"),
    ("training.inspect a.tsv --val a.txt typo", 1, "cannot read typo: No such file"),
    ("training.inspect a.tsv --run typo", 1, "typo is no directory"),
    ("training.multi30k a.txt", 1, "cannot write to a.txt: File exists"),
    ("training.picture typo text --out o", 1, "typo is no directory"),
    ("training.shortlist run --source typo --out x.npz", 1, "cannot read typo: No such file"),
    ("training.shortlist run --source a.tsv --out typo/x", 1, "--out must be in a folder that"),
    ("training.train --source a.txt --target typo --run new", 1, "cannot read typo: No such file"),
    ("training.train --family tagger --source typo --run new", 1, "cannot read typo: No such f"),
    ("training.train --text typo --family language-model --run new", 1, "cannot read typo: No"),
    ("training.train typo.py --run new", 2, "existing Python file or a name, got typo.py"),
    ("training.train dates --init typo --run new", 1, "typo is no directory"),
    ("training.train dates --teachers run typo --run new", 1, "typo is no directory"),
    ("training.train dates --run a.txt", 1, "--run must be a folder, got the file a.txt"),
    ("training.train --config typo --run new", 2, "--config typo: [Errno 2] No such file"),
    ("training.translate typo", 1, "typo is no directory"),
    ("training.translate folder", 1, "has no config.json"),
    (f"training.translate {'long' * 100}", 1, "File name too long"),
    (f"export.saved_model {'long' * 100} out", 1, "File name too long"),
    ("training.translate run --picture typo/x.png", 1, "--picture must be in a folder that exi"),
]
# Runs them one after the other: [[exit code, standard error, whether TensorFlow is imported], ...].
PROGRAM = """
import contextlib, importlib, io, json, sys
found = []
for module, *words in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            code = importlib.import_module(module).main(words)
        except SystemExit as end:
            code = end.code
    found.append([code, said.getvalue(), "keras" in sys.modules or "tensorflow" in sys.modules])
print(json.dumps(found))
"""


def test_wrong_path_is_reported_before_tensorflow_is_imported(tmp_path):
    for folder in ("run", "folder", "saved"):
        (tmp_path / folder).mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"")
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "a.tsv").write_text("a\tb\n")
    lines = [line.split() for line, _, _ in CASES]
    command = [sys.executable, "-c", PROGRAM, json.dumps(lines)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for (line, code, message), (ended, said, imported) in zip(CASES, found, strict=True):
        [last] = said.splitlines()[-1:]
        assert (ended, imported) == (code, False), f"{line}: {said}"
        assert message in last and last.startswith(f"python -m {line.split()[0]}: error: "), said
    assert not {path.name for path in tmp_path.iterdir()} - {
        "run", "folder", "saved", "a.txt", "a.tsv",
    }  # fmt: skip
