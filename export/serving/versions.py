"""Loads and unloads the versions of all models, as `core/aspired_versions_manager.cc` does.

Finding versions on the disk follows `sources/storage_path/file_system_storage_path_source.cc`.
Choosing the version of a request, and reading a configuration, follow
`model_servers/server_core.cc`.

A base directory is read every second. Each folder whose name is an integer is a version. New
versions of the policy are loaded before old ones are unloaded. If a version does not load, the old
one stays loaded. The version is tried again when its files change, not every minute. A label may
name a version that is not loaded, as with `--allow_version_labels_for_unavailable_models`.
"""

import dataclasses
import os
import sys
import threading
import time
from pathlib import Path

from google.protobuf import text_format
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.config import model_server_config_pb2

from ..capi.library import CODES, ServingError, as_serving_error, invalid
from ..verification.errors import UsageError
from ..verification.paths import require_model
from ..verification.warmup import WARMUP_FILE
from .metrics import Metrics
from .model import Model, Unloaded

States = get_model_status_pb2.ModelVersionStatus.State
MOUNTED = Path("/models")  # in the container


@dataclasses.dataclass
class Version:
    """A version: its state, the error if it did not load, and the model if it did."""

    state: int
    error: ServingError | None = None
    model: Model | None = None
    stamp: tuple = ()  # the `_stamp` of its folder when loading was tried

    def status(self, number):
        """The ModelVersionStatus of the version."""
        status = get_model_status_pb2.ModelVersionStatus(version=number, state=self.state)
        status.status.SetInParent()  # the field is present for OK too
        if self.error:
            status.status.error_code = CODES.index(self.error.code_name)
            status.status.error_message = self.error.message
        return status


class Versions:
    """The loaded versions of all models of a ModelServerConfig.

    `say` is called with a line when a version is being loaded, is loaded, unloaded or refused. The
    `options` are arguments of `Model`. A UsageError names what is not valid in the configuration.
    """

    def __init__(self, config, say=lambda line: None, **options):
        self.metrics = Metrics()
        self._say, self._options = say, {**options, "ran": self.metrics.run}
        self._models = {}  # name -> {number: Version}
        self._refreshing, self._closed = threading.Lock(), threading.Event()
        try:
            self.configure(config)
        except BaseException:  # a signal too: the caller gets no object that it could close
            self.close()
            raise

    def configure(self, config):
        """Changes to another ModelServerConfig, for `HandleReloadConfigRequest`."""
        models = list(config.model_config_list.config)
        for model in models:
            require_model(model.name, model.base_path)
            if model.model_platform != "tensorflow":
                raise UsageError(
                    f"model_platform of {model.name!r} must be 'tensorflow', got "
                    f"{model.model_platform!r}"
                )
        names = [model.name for model in models]
        if len(set(names)) != len(names) or not names:
            raise UsageError(f"models must have names of their own, at least one, got {names}")
        self._config = {model.name: model for model in models}
        self.refresh()

    def watch(self, seconds=1.0):
        """Starts a thread that calls `refresh` every `seconds` until `close`."""

        def look():
            said = None
            while not self._closed.wait(seconds):
                try:
                    self.refresh()
                    said = None
                except Exception as error:  # perhaps a folder is missing for now: change nothing
                    if said != str(error):
                        said = str(error)
                        self._say(f"the versions cannot be looked for: {said}")

        threading.Thread(target=look, daemon=True).start()

    def refresh(self):
        """Reads the directories once, and loads and unloads versions.

        If a directory cannot be read, its model stays as it is, and OSError is raised at the end.
        """
        failed = None
        with self._refreshing:
            for name in {*self._models, *self._config}:
                try:
                    self._refresh(name)
                except OSError as error:
                    failed = error
        if failed:
            raise failed

    def _refresh(self, name):
        versions = self._models.setdefault(name, {})
        wanted = self._wanted(self._config[name]) if name in self._config else {}
        self._load(name, versions, wanted)
        ready = any(v.model for number, v in versions.items() if number in wanted)
        if ready or not wanted:
            self._unload(name, versions, wanted)
        else:  # none of the wanted versions loads: keep the old ones, or load them again
            served = {n: v.model.directory for n, v in versions.items() if v.model}
            self._load(name, versions, served)

    def predict(self, request, timeout=None):
        """Answers a PredictRequest with the version that it names. See `Model.predict`."""
        while True:
            model = self.model(request.model_spec)
            try:
                return model.predict(request, timeout)
            except Unloaded:  # unloaded between lookup and call: another version replaces it
                continue

    def require_all(self):
        """Raises ServingError if a model has no loaded version."""
        missing = []
        for name in self._config:
            versions = self._models.get(name, {})
            if not any(version.model for version in list(versions.values())):
                errors = [
                    f"version {number}: {version.error}"
                    for number, version in sorted(versions.items())
                    if version.error
                ]
                missing.append(f"{name} ({'; '.join(errors) or 'no version'})")
        if missing:
            message = f"Some models did not become available: {{{', '.join(missing)}}}"
            raise ServingError("UNKNOWN", message)

    def model(self, spec):
        """The loaded `Model` of a ModelSpec; the newest one if the ModelSpec names no version."""
        if not spec.name:
            raise invalid("ModelSpec has no name specified.")
        versions = self._models.get(spec.name, {})
        loaded = {n: v.model for n, v in list(versions.items()) if v.model}
        number, asked = None, f"Latest({spec.name})"
        if spec.HasField("version"):
            number = spec.version.value
        elif spec.version_label:
            config = self._config.get(spec.name)
            if config is None or spec.version_label not in config.version_labels:
                raise invalid(f"Unrecognized servable version label: {spec.version_label}")
            number = config.version_labels[spec.version_label]
        if number is not None:
            asked = f"Specific({spec.name}, {number})"
        elif loaded:
            number = max(loaded)
        if number not in loaded:
            raise ServingError("NOT_FOUND", f"Servable not found for request: {asked}")
        return loaded[number]

    def status(self, spec):
        """A GetModelStatusResponse (`model_servers/get_model_status_impl.cc`)."""
        versions = dict(self._models.get(spec.name, {}))
        if not versions:
            message = f"Could not find any versions of model {spec.name}"
            raise ServingError("NOT_FOUND", message)
        if spec.HasField("version"):
            number = spec.version.value
            if number not in versions:
                message = f"Could not find version {number} of model {spec.name}"
                raise ServingError("NOT_FOUND", message)
            versions = {number: versions[number]}
        response = get_model_status_pb2.GetModelStatusResponse()
        statuses = [version.status(number) for number, version in sorted(versions.items())]
        response.model_version_status.extend(reversed(statuses))
        return response

    def close(self, deadline=None):
        """Unloads everything. `deadline` is that of the running requests; default: see
        `Model.close`.

        If a version is still loading then, nothing is unloaded: all processes end with this one.
        """
        self._closed.set()
        left = deadline.left() if deadline else -1
        if not self._refreshing.acquire(timeout=left):
            return
        try:
            for name, versions in self._models.items():
                self._unload(name, versions, {}, deadline)
        finally:
            self._refreshing.release()

    def _wanted(self, config):
        """{number: folder} of the versions that the model's policy selects."""
        folders = {
            int(folder.name): folder
            for folder in Path(config.base_path).iterdir()
            if folder.name.isdecimal() and int(folder.name) < 2**63
        }
        policy = config.model_version_policy
        kind = policy.WhichOneof("policy_choice")
        if kind == "all":
            return folders
        if kind == "specific":
            return {
                number: folders[number] for number in policy.specific.versions if number in folders
            }
        newest = sorted(folders, reverse=True)[: policy.latest.num_versions or 1]
        return {number: folders[number] for number in newest}

    def _load(self, name, versions, wanted):
        for number, folder in sorted(wanted.items()):
            version, dead = versions.get(number), None
            if version and version.model:
                version.model.worker.beat()
            if version and version.model and not version.model.worker.alive:
                self._say(f"{name} version {number}: its process is gone; loading it again")
                version, dead = None, version.model
            stamp = _stamp(folder)
            if version and (version.model or version.stamp == stamp):
                continue
            # Until it is loaded again, the ended process answers UNAVAILABLE.
            versions[number] = Version(States.LOADING, model=dead)
            self._say(f"{name} version {number} is being loaded ...")
            start = time.monotonic()
            try:
                model = self._whole(name, number, folder, stamp)
            except Exception as error:  # an error of one model must not stop the others
                reason = as_serving_error(error)
                versions[number] = Version(States.END, reason, stamp=stamp)
                self._say(f"{name} version {number} is refused: {reason}")
            else:
                versions[number] = Version(States.AVAILABLE, model=model, stamp=stamp)
                warm, seconds = len(model.warmup_requests), time.monotonic() - start
                self._say(
                    f"{name} version {number} is loaded in {seconds:.1f} s "
                    f"({warm} warm-up requests)"
                )
            if dead:
                dead.close()

    def _whole(self, name, number, folder, stamp):
        """Loads the `Model` of a folder. Raises ABORTED if the files changed during loading."""
        model = Model(name, number, folder, **self._options)
        if _stamp(folder) != stamp:
            model.close()
            raise ServingError("ABORTED", "its folder was changed while it was loaded")
        return model

    def _unload(self, name, versions, wanted, deadline=None):
        """Unloads the versions that are not wanted. Their status stays available, as END."""
        for number in set(versions) - set(wanted):
            model = versions[number].model
            if model:
                versions[number] = Version(States.END)
                model.close(deadline)
                self._say(f"{name} version {number} is unloaded")


def read_config(path):
    """Reads a ModelServerConfig from a file in text format. A fault is a UsageError.

    docker-compose.yml mounts the folder of the file under `/models`. If a base_path in `/models`
    does not exist here, it is replaced by the same path in the parent of that folder.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        config = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    except (OSError, ValueError, text_format.ParseError) as error:
        raise UsageError(f"the models' configuration cannot be read: {error}") from error
    for model in config.model_config_list.config:
        base = Path(model.base_path)
        if base.is_relative_to(MOUNTED) and not base.exists():
            model.base_path = str(Path(path).resolve().parents[1] / base.relative_to(MOUNTED))
    return config


def one_model(name, base_path):
    """A ModelServerConfig that serves the newest version of one model."""
    config = model_server_config_pb2.ModelServerConfig()
    config.model_config_list.config.add(
        name=name, base_path=str(base_path), model_platform="tensorflow"
    )
    return config


def _stamp(folder):
    """Values that change when a version is written again: inodes and modification times."""
    names = ["saved_model.pb", "variables/variables.index", str(WARMUP_FILE)]

    def stamp(path):
        try:
            found = path.stat()
        except OSError:  # the file does not exist, or is a link to itself
            return None
        return found.st_ino, found.st_mtime_ns

    return tuple(stamp(path) for path in (folder, *(folder / name for name in names)))


def warn(line):
    """Prints a line on standard error. If that fails, the work continues."""
    if sys.stderr is None:
        return
    try:
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        # Nobody reads standard error. The rest of its buffer would fail again when Python ends,
        # and change the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    except (OSError, ValueError):  # the disk is full, or standard error is closed
        return
