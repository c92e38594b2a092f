"""Each fenced block of the pages is parsed as a user's program would: shell, commands, JSON, TOML,
Python.

tests/test_blocks_run.py runs the blocks that can be run here. `ELSEWHERE` (by the first word of a
command) and `LANGUAGES` list the others, each with the reason and with what is checked.
"""

import importlib
import importlib.util
import json
import re
import subprocess
import tomllib

import blocks
import blocks_world
import pytest
import served_table
import yaml
from paths import ROOT

from export.serving import http
from tfformer.terminal.command import Parser
from training.command_line.options import corpus_files
from training.data.reader import require_readable

VARIABLE = re.compile(r"\$[A-Z]+")


def test_shell_blocks_are_valid_shell():
    for block in filter(blocks.is_shell, blocks.all_blocks(*blocks.SHELL)):
        shell = ["bash" if block.language == "bash" else "sh", "-n"]
        done = subprocess.run(shell, input=block.text, capture_output=True, text=True)
        assert done.returncode == 0, f"{block.name}: {done.stderr}"


def check_make(words):
    """Checks that the Makefile has the targets."""
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(words[1:]) <= targets


def check_pip(words):
    """Checks that the project has the extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extras in re.findall(r"\[(.*?)\]", " ".join(words)):
        assert set(extras.split(",")) <= set(project["optional-dependencies"])


def check_file(words):
    """Checks that the program, or the file that it runs, is a file of the project."""
    path = ROOT / (words[1] if words[0] in ("python", "sh") else words[0])
    assert path.is_file(), path


def check_curl(words):
    """Checks that the server has the path, and that it can read the body."""
    assert words[1] == "-d"
    check_body(words[2])
    check_url(words[3])


def check_url(text):
    """Checks the address of a server: host, port, and a path that it answers."""
    match = re.fullmatch(r"(?:http://)?localhost:8501(/.*)", text)
    assert match and http.PREDICT.fullmatch(match[1]), text


def check_body(text):
    """Checks that a JSON body names an existing signature and its inputs."""
    body = json.loads(text)
    assert ("instances" in body) != ("inputs" in body), text
    check_names(body.get("signature_name", "serving_default"), set(body.get("inputs", ())))


def check_names(signature, inputs):
    """Checks the name of a translator's signature and the names of its inputs."""
    assert signature in served_table.SIGNATURES, signature
    known = set(served_table.SIGNATURES[signature][0])
    assert inputs <= known, f"{signature} has no {inputs - known}"


def check_nothing(words):
    """Accepts any arguments, for commands of the shell itself."""


# {the first word of a command that is not run here: (the reason, the check)}
ELSEWHERE = {
    ".ci/run": ("runs all tests", check_file),
    "awk": ("is of every Unix", check_nothing),
    "aws": ("needs a bucket", check_nothing),
    "curl": ("needs a server; tests/export/test_contract.py asks one", check_curl),
    "eval": ("changes the shell that completes commands", check_nothing),
    "docker": ("needs Docker; tests/export/test_compose.py", check_nothing),
    "echo": ("is fed to the next command, which is run with it", check_nothing),
    "grpcurl": ("needs a server; tests/export/test_contract.py asks one", check_nothing),
    "kubectl": ("needs a cluster; tests/export/test_kubernetes.py", check_nothing),
    "make": ("is what runs the tests, or takes many minutes", check_make),
    "mv": ("moves what a download has left", check_nothing),
    "pip": ("is a download", check_pip),
    "wait": ("is the shell's own", check_nothing),
}
COMMANDS = [command for page in blocks.PAGES for command in blocks.page_commands(page)]
MENTIONED = [
    command
    for page in blocks.PAGES
    for command in blocks.inline_commands(blocks.read(page), {"python", "tfformer", *ELSEWHERE})
]
EACH = list({str(command): command for command in [*COMMANDS, *MENTIONED]}.values())


def each(chosen):
    return pytest.mark.parametrize("command", chosen, ids=map(str, chosen))


@each([command for command in EACH if not command.module])
def test_documented_command_of_another_program_is_checked(command):
    check_other(command)


def check_other(command):
    """Checks a command that is not `python -m`."""
    if command.words[:2] == ("python", "-c"):
        exec(compile(command.words[2], "-c", "exec"), {})
    elif command.words[0] == "python":
        check_file(command.words)
    elif command.words[0] == "tfformer":
        assert command.words[1:] in (("--help",), ("COMMAND", "--help")), command
    else:
        assert command.words[0] in ELSEWHERE, f"nobody said why this is not run: {command}"
        _, check = ELSEWHERE[command.words[0]]
        check(command.words)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with the files that the commands name."""
    folder = tmp_path_factory.mktemp("world")
    blocks_world.make_texts(folder)
    return folder


@pytest.fixture
def parsed(world, monkeypatch):
    """Returns a function that parses a command's arguments by its own parser, without running
    it."""
    monkeypatch.chdir(world)
    monkeypatch.setattr(Parser, "run", lambda self, _, given=None: self.parse_args(given))

    return lambda command: main_of(command)(arguments_of(command, world))


def main_of(command):
    """The function that a command of `python -m` calls."""
    module = importlib.import_module(command.module)
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{command.module}.__main__")
    return module.main


def arguments_of(command, folder):
    """The arguments of a command, with a value in place of its three dots."""
    arguments = blocks_world.with_files(command, folder)
    if "..." in arguments:
        place = arguments.index("...")
        files = ["train.en", "--target", "train.de"]
        arguments[place : place + 1] = files if "--source" in arguments[:place] else ["dates"]
    return arguments


@each([command for command in EACH if command.module and "examples" not in command.module])
def test_the_parser_accepts_a_command(command, parsed, capsys):
    if command in MENTIONED and not command.arguments:
        # A module that the prose names without arguments, such as `training.dates`.
        assert callable(main_of(command))
        return
    try:
        assert vars(parsed(command)) is not None
    except SystemExit as ended:
        assert ended.code == 0 and "--help" in command.words, capsys.readouterr().err


@each([command for command in EACH if "examples" in command.module])
def test_example_module_exists(command):
    assert importlib.util.find_spec(command.module.replace("NAME", "classifier"))


def resolves(command):
    """Whether a command is a training that does not resume with the settings of another one."""
    is_training = command.module == "training.train" and bool(command.arguments)
    return is_training and "--resume" not in command.words


@each([command for command in EACH if resolves(command)])
def test_training_command_resolves_its_files_and_settings(command, world, monkeypatch, capsys):
    monkeypatch.chdir(world)
    assert_resolved(command, world, capsys)


def assert_resolved(command, folder, capsys):
    """Checks that its files can be read and that --print-config prints all settings as TOML.

    It reads them as a new training does. The files of recipes are not checked here.
    """
    train, words = importlib.import_module("training.train"), arguments_of(command, folder)
    code = train.main([*words, "--print-config"])
    found = capsys.readouterr()
    assert code == 0, found.err
    assert tomllib.loads(found.out)
    given = train.parser().parse_args(words)
    files = corpus_files(given)
    require_readable(files)
    if files:
        assert any(True for _ in train.read_recipe(given).read("val", given.data))


def test_environment_variables_before_a_command_are_valid():
    seen = [command.environment for command in COMMANDS if command.environment]
    for environment in seen:
        assert set(environment) == {"TF_CONFIG"}
        config = json.loads(VARIABLE.sub("0", environment["TF_CONFIG"]))
        assert len(config["cluster"]["worker"]) > config["task"]["index"]
    assert seen


# {a language: (why its blocks are not run here, or how they are run)}
LANGUAGES = {
    "bash": "tests/test_blocks_run.py",
    "sh": "tests/test_blocks_run.py",
    "": "tests/test_blocks_run.py",
    "python": "tests/test_blocks_run.py",
    "json": "parsed",
    "toml": "parsed",
    "yaml": "parsed",
    "go": "needs its compiler; tests/export/test_contract.py has its body",
    "java": "needs its compiler; tests/export/test_contract.py has its body",
    "js": "needs its interpreter; tests/export/test_contract.py has its body",
}


def check_language(block):
    """Checks a block that is neither shell nor Python."""
    assert block.language in LANGUAGES, f"{block.name}: nobody said how {block.language} is tested"
    if block.language == "json":
        for line in block.text.splitlines():
            check_body(line)
    elif block.language == "toml":
        assert tomllib.loads(block.text)
    elif block.language == "yaml":
        assert yaml.safe_load(block.text)


OTHERS = [
    block
    for page in blocks.PAGES
    for block in blocks.page_blocks(page)
    if block.language not in ("python", *blocks.SHELL)
]


@pytest.mark.parametrize("block", OTHERS, ids=[block.name for block in OTHERS])
def test_block_of_another_language_is_valid(block):
    check_language(block)
