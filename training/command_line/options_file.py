"""Reads and writes files of options: `tfformer train --config FILE`, `--print-config`.

The format is TOML. Each key is an option of the command without its two hyphens. Options on the
command line override those in the file.
"""

import difflib
import json
import math
import tomllib

from tfformer import files

# Options that are only allowed on the command line.
NOT_IN_A_FILE = ("help", "config", "print-config", "resume")


def arguments_of(path, parser):
    """Converts a file of options to command-line arguments, and the recipe that it names or None.

    The recipe is a positional argument of the command, not an option.

    Raises:
        ValueError: the file cannot be read or is no TOML, or a key is no option.
    """
    try:
        with open(path, "rb") as file:  # or a pipe
            content = file.read(files.LONGEST_TEXT)
        values = tomllib.loads(content.decode())
    except (OSError, ValueError) as error:
        raise ValueError(f"--config {path}: {error}") from error
    recipe = values.pop("recipe", None)
    if not isinstance(recipe, str | None):
        raise ValueError(f"--config {path}: recipe must be a word, got {recipe!r}")
    options = {
        name[2:]: action
        for action in parser._actions
        for name in action.option_strings
        if name[2:] not in NOT_IN_A_FILE and not name.startswith("--no-")
    }
    arguments = []
    for key, value in values.items():
        name = key.replace("_", "-")
        if name not in options:
            near = difflib.get_close_matches(name, options, 1)
            hint = f": did you mean {near[0]}?" if near else ""
            raise ValueError(f"--config {path}: {key} is no option{hint}")
        arguments += _words(path, name, value, options[name])
    return arguments, recipe


def _words(path, name, value, action):
    """The command-line arguments for a key and its value."""
    if f"--no-{name}" in action.option_strings:
        kind, fits = "true or false", isinstance(value, bool)
    elif action.nargs == "+":
        # A word with a hyphen would be an option, perhaps with a file that is executed.
        kind = "a list of words without a hyphen at the start"
        fits = isinstance(value, list) and value
        fits = fits and all(isinstance(v, str) and not v.startswith("-") for v in value)
    else:
        kind = "a number or a word"
        fits = isinstance(value, int | float | str) and not isinstance(value, bool)
    if not fits:
        raise ValueError(f"--config {path}: {name} must be {kind}, got {value!r}")
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", *value] if isinstance(value, list) else [f"--{name}={value}"]


def written(values):
    """Converts options {title: {name: value}} to TOML. Values of None are left out."""
    lines = []
    for title, options in values.items():
        lines += [f"# {title}"] if options else []
        for name, value in options.items():
            if value is not None:
                lines.append(f"{name.replace('_', '-')} = {_literal(value)}")
        lines += [""] if options else []
    return "\n".join(lines)


def _literal(value):
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return json.dumps(str(value), ensure_ascii=False)
