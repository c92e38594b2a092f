"""In a checkout, makes `training` and `export` second names of packages inside `tfformer`.

Installed, the packages of commands are `tfformer.training` and `tfformer.export`. In a checkout
their folders are beside `tfformer`. There, `python -m training.train` and `import training` still
work, and give the same modules: each class exists once, whichever name it was imported by.
"""

import importlib.abc
import importlib.util
import sys
from pathlib import Path

NAMES = ("training", "export")


def root():
    """The root folder of a checkout; None for an installed package."""
    library = Path(__file__).parent
    inside = (library / NAMES[0]).exists()
    beside = (library.parent / NAMES[0] / "__main__.py").exists()
    return str(library.parent) if beside and not inside else None


class _Beside(importlib.abc.MetaPathFinder):
    """Finds `tfformer.training` and `tfformer.export` in the root folder of a checkout."""

    def find_spec(self, name, path, target=None):
        package, _, top = name.rpartition(".")
        if package != "tfformer" or top not in NAMES:
            return None
        folder = Path(root(), top)
        places = [str(folder)]
        return importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=places
        )


def find_commands():
    """Makes the packages of commands importable as `tfformer.training` and `tfformer.export`."""
    if root():
        sys.meta_path.append(_Beside())


def second_name(name):
    """Makes `name` a second name of the package `tfformer.NAME`; its own file calls this."""
    if not any(isinstance(finder, _SecondNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, _SecondNames())
    sys.modules[name] = importlib.import_module(f"tfformer.{name}")


class _SecondNames(importlib.abc.MetaPathFinder):
    """Finds `training.x` as `tfformer.training.x`."""

    def find_spec(self, name, path, target=None):
        if not name.startswith(tuple(f"{one}." for one in NAMES)):
            return None
        spec = importlib.util.find_spec(f"tfformer.{name}")
        if spec is None:
            return None
        is_package = spec.submodule_search_locations is not None
        loader = _SecondName(spec)
        return importlib.util.spec_from_loader(
            name, loader, origin=spec.origin, is_package=is_package
        )


class _SecondName(importlib.abc.Loader):
    """Loads a module by its first name.

    Args:
        first: the module's specification by its first name.
    """

    def __init__(self, first):
        self.first = first

    def create_module(self, spec):
        module = importlib.import_module(self.first.name)
        self.own = module.__spec__  # Python replaces it by `spec`
        return module

    def exec_module(self, module):
        module.__spec__ = self.own

    def get_code(self, name):
        """For `python -m`."""
        return self.first.loader.get_code(self.first.name)
