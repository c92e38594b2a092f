"""The report of a verified SavedModel: its checks and their results, as data and as a table."""

from dataclasses import asdict, dataclass, field

import numpy as np

Answer = dict[str, np.ndarray]


@dataclass(frozen=True)
class Check:
    """One check: its name, whether it passed, and the details or the faults."""

    name: str
    passed: bool
    detail: str


@dataclass
class Report:
    """All checks of one SavedModel, with the files, graph and answers found on the way."""

    directory: str
    checks: list[Check] = field(default_factory=list)
    files: dict[str, dict] = field(default_factory=dict)  # path -> bytes, sha256
    weights: dict[str, int] = field(default_factory=dict)  # variables, parameters
    graph: object | None = None  # an `export.verification.graph.Graph`
    deployment: dict | None = None  # limits, FLOPs, latency: `export.artifacts.deployment.facts`
    served: dict[str, list[Answer | None]] = field(default_factory=dict)  # None: it failed
    not_compared: list[str] = field(default_factory=list)  # comparisons skipped by `--quick`

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def add(self, name: str, faults: list[str], good: str):
        """Adds a check. Without faults it passes with the text `good`; else it lists the first."""
        more = [f"and {len(faults) - 3} more"] if len(faults) > 3 else []
        self.checks.append(Check(name, not faults, "; ".join(faults[:3] + more) or good))

    def to_dict(self) -> dict:
        return {
            "directory": self.directory,
            "passed": self.passed,
            "checks": [asdict(check) for check in self.checks],
            "not_compared": self.not_compared,
            "files": self.files,
            "weights": self.weights,
            "graph": self.graph and self.graph.to_dict(),
            "deployment": self.deployment,
            "served": {
                name: [answer and {k: _to_list(v) for k, v in answer.items()} for answer in answers]
                for name, answers in self.served.items()
            },
        }


def show(report: Report):
    """Prints the checks as a table."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    size = sum(fact["bytes"] for fact in report.files.values())
    title = f"{report.directory} ({len(report.files)} files, {size:,} bytes)"
    table = Table("check", "", "detail", title=Text(title), title_justify="left")
    for check in report.checks:
        verdict = Text("passed", "green") if check.passed else Text("FAILED", "red")
        table.add_row(Text(check.name), verdict, Text(check.detail))
    for what in report.not_compared:
        table.add_row(Text("--quick"), Text("not compared", "yellow"), Text(what))
    Console().print(table)


def _to_list(array: np.ndarray) -> list:
    if array.dtype != object:
        return array.tolist()
    texts = [value.decode(errors="replace") for value in array.ravel().tolist()]
    return np.array(texts, object).reshape(array.shape).tolist()
