"""Records sessions: a session is a training from its start or resume until it ends or is killed.

`sessions.json` of a run directory lists the sessions in order. A session is updated with each
checkpoint. If the training is killed, the time since the last checkpoint is lost and not counted.
"""

import time
from datetime import UTC, datetime
from pathlib import Path

from tfformer.files import read_json, write_json

from ..step import machine
from .energy import Energy

SESSIONS = "sessions.json"
JOULES_PER_KWH = 3.6e6


class Session:
    """The current session, in the block `with Session(...) as session:`.

    `step` is the number of steps that the run made before. If there may be `several` workers, this
    process has no facts about their machines.
    """

    def __init__(self, directory, step, replicas=1, several=False, dtype="float32"):
        self.path = Path(directory) / SESSIONS
        self.before = read_sessions(directory)
        gpus = machine.gpus()
        self.energy = Energy(bool(gpus))
        self.started = time.monotonic()
        self.facts = {
            "began": _now(),
            "steps": [step, step],
            "replicas": replicas,
            "several_workers": several,
            "dtype": dtype,
            "machine": {**machine.describe(), "gpus": gpus},
            "versions": machine.versions(),
            "commit": machine.commit(),
        }

    def __enter__(self):
        self.energy.__enter__()
        return self

    def __exit__(self, *error):
        self.energy.__exit__(*error)

    def record(self, step):
        """Writes the state of the session at this step."""
        self.facts["steps"][1] = step
        self.facts |= {
            "ended": _now(),
            "seconds": round(time.monotonic() - self.started, 1),
            "joules": self.energy.joules(),
            "missing": self.energy.missing,
        }
        write_json(self.path, [*self.before, self.facts])


def read_sessions(directory):
    """The sessions of a run directory in order; [] if there are none."""
    path = Path(directory) / SESSIONS
    return read_json(path, list) if path.exists() else []


def costs(sessions):
    """Yields (name, words) about the total cost of a run's sessions.

    These are time, steps, machine, versions, commit and energy. Values that sessions share appear
    once.
    """
    first, last = sessions[0], sessions[-1]
    minutes = f"{sum(session['seconds'] for session in sessions) / 60:.1f}"
    if len(sessions) > 1:
        minutes += f" in {len(sessions)} sessions"
    if first["steps"][0]:
        minutes += f"; those before step {first['steps'][0]:,} were not recorded"
    # With several workers, the writing worker can only describe its own machine.
    part = " of the first worker" if any(one["several_workers"] for one in sessions) else ""

    def distinct(words):
        return "; then ".join(dict.fromkeys(map(words, sessions)))

    yield "from, to", f"{first['began']}, {last['ended']}"
    yield "minutes, validation included", minutes
    yield "steps", f"{last['steps'][1]:,}"
    yield "devices", distinct(lambda one: str(one["replicas"]))
    yield "computed in", distinct(lambda one: one.get("dtype", "float32"))
    yield f"hardware{part}", distinct(lambda one: machine.sentence(one["machine"]))
    yield "versions", distinct(lambda one: ", ".join(map(" ".join, one["versions"].items())))
    yield "commit", distinct(lambda one: one["commit"] or "unknown: no checkout of Git")
    yield f"energy of the processors{part}", _energy("processors", sessions)
    if any(one["machine"]["gpus"] for one in sessions):
        yield f"energy of the GPUs{part}", _energy("gpus", sessions)


def _energy(part, sessions):
    """The energy that a part of the machine has used, or why it is unknown."""
    measured = [one["joules"][part] for one in sessions if part in one["joules"]]
    if not measured:
        reasons = [one["missing"][part] for one in sessions if part in one["missing"]]
        return f"could not be had: {'; '.join(dict.fromkeys(reasons))}"
    words = f"{sum(measured) / JOULES_PER_KWH:.6f} kWh by their counters"
    if len(measured) < len(sessions):
        words += f", in {len(measured)} of {len(sessions)} sessions; else it could not be had"
    return words


def _now():
    return datetime.now(UTC).isoformat(timespec="seconds")
