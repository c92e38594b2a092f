"""The docstring of each public name has an example that runs, and lists the errors."""

import ast
import doctest
import inspect
import os
import textwrap

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfformer

NAMES = sorted(tfformer.__all__)
RAISED = {"ValueError", "TypeError", "RunError"}
# Names that the examples need not import.
KNOWN = {
    **{name: getattr(tfformer, name) for name in NAMES},
    "keras": keras,
    "np": np,
    "os": os,
    "tf": tf,
    "tfformer": tfformer,
}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run(name, docstring):
    """(examples, failures) of a docstring in a new namespace; failures are printed."""
    test = doctest.DocTestParser().get_doctest(docstring, dict(KNOWN), name, None, 0)
    return test.examples, doctest.DocTestRunner(optionflags=OPTIONS).run(test).failed


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_public_name_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Before the example makes a tokenizer, because seeding ends existing ones.
    keras.utils.set_random_seed(7)
    docstring = inspect.getdoc(getattr(tfformer, name))
    assert "\nExample" in docstring
    examples, failed = run(name, docstring)
    assert examples and not failed
    assert 2 <= sum(bool(line.strip()) for e in examples for line in e.source.splitlines()) <= 6


# Methods that create a class or that Keras calls; the docstring of the class lists their errors.
OF_THE_CLASS = ("__init__", "__post_init__", "__call__", "build", "call")


def public(name):
    """(name, docstring, the functions that run when it is called) of a name and of its methods.

    A method that a class inherits from another class of the library belongs to that class.
    """
    value = getattr(tfformer, name)
    if not inspect.isclass(value):
        yield name, value.__doc__, [value]
        return
    written = {}
    for base in reversed(value.__mro__):
        if base.__module__.startswith("tfformer."):
            written |= {method: getattr(value, method) for method in vars(base)}
    made = {method: inspect.unwrap(f) for method, f in written.items() if inspect.isroutine(f)}
    # (The `__init__` of a dataclass or a tuple is in no file.)
    made = {
        method: f for method, f in made.items() if os.path.isfile(inspect.getsourcefile(f) or "")
    }
    yield name, value.__doc__, [made[method] for method in OF_THE_CLASS if method in made]
    for method, function in made.items():
        if not method.startswith("_") and method not in OF_THE_CLASS:
            yield f"{name}.{method}", inspect.getdoc(getattr(value, method)), [function]


def raised(function):
    """The errors of `RAISED` that the body of a function raises."""
    source = textwrap.dedent(inspect.getsource(function))
    raises = [node.exc for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Raise)]
    return RAISED & {getattr(getattr(error, "func", None), "id", None) for error in raises}


def silent(docstring, functions):
    """The errors that the functions raise and the docstring does not name."""
    section = inspect.cleandoc(docstring or "").partition("\nRaises:\n")[2].split("\n\n")[0]
    return {error for f in functions for error in raised(f) if f"    {error}: " not in section}


@pytest.mark.parametrize("name", NAMES)
def test_docstring_names_every_raised_error(name):
    for one, docstring, functions in public(name):
        assert not silent(docstring, functions), one
