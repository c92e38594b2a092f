"""Writes the files that a deployment needs besides the SavedModel, beside its versions.

    exported/dates/
        1/                         the SavedModel, with its warm-up requests
        1.report.json              what was checked and measured
        README.md                  commands, signatures, limits of this model; new at each export
        models.config              which versions are served; yours to change
        monitoring.config          metrics for Prometheus; yours
        batching_parameters.txt    with --batching; yours
        docker-compose.yml         the stock server with all of them; yours
        docker-compose.gpu.yml     what differs on a GPU; yours
        kubernetes.yaml            the same server in a cluster; yours

The files marked as yours are written once and never overwritten. The templates are in
`export/templates`.
"""

import json
import os
import platform
import re
import shlex
import statistics
import time
from datetime import date
from pathlib import Path

TEMPLATES = Path(__file__).parents[1] / "templates"
PAGE = "README.md"
COMPOSE, KUBERNETES = "docker-compose.yml", "kubernetes.yaml"
FILES = ("models.config", "monitoring.config", COMPOSE, "docker-compose.gpu.yml", KUBERNETES)
# Patterns that find the limit of memory, in MiB, in an unchanged file.
MEMORY_LIMITS = {COMPOSE: r"memory: \$\{MEMORY:-(\d+)m\}", KUBERNETES: r"limits: .*memory: (\d+)Mi"}
BATCH_ROWS = 32  # maximum rows of a batch that the server joins
LATENCY_BATCHES, LATENCY_ROUNDS = (1, 8, 32), 5
# Seconds for the rounds of a batch. If they take longer, no more rounds and no larger batches are
# measured: a large language model may need minutes for one request.
LATENCY_SECONDS = 60
BATCHING = (
    "It was exported to be batched: the server joins the requests of several clients, as\n"
    "`batching_parameters.txt` says. Only signatures whose inputs are all texts are in it."
)
NO_BATCHING = (
    "It does not join the requests of several clients; an export with `--batching` is for a\n"
    "server that does."
)
BATCHING_FLAGS = (
    "--enable_batching=true",
    "--batching_parameters_file=/models/@name@/batching_parameters.txt",
)
NOT_COMPARED = "\nIt was exported with `--quick`: it loads and answers, but not compared were{}\n"
XLA_FLAGS = ("--xla_cpu_compilation_enabled=true",)
MEMORY_STEP = 2**28  # limits of memory are multiples of this
DEFAULT_PEAK = 2**31  # assumed peak memory of a version in bytes, if the kernel reports none


def write_deployment(directory, report, batching=False, xla=False, folder=None):
    """Writes README.md for the newest version, and those of the other files that are missing.

    `report` is a dict, with the result of `facts` under "deployment". A file is written in `folder`
    before it is moved into place. Returns lines: what does not fit this version in old files.
    """
    from tfformer.files import write_atomically

    directory = Path(directory)
    name = directory.resolve().name
    # If a batch had more rows than the model accepts, all requests in it would fail.
    limit = report["deployment"]["limits"]["max_batch_size"]
    values = {
        "name": name,
        "label": cluster_label(name),
        "rows": str(min(BATCH_ROWS, limit)),
        "memory": str(memory_limit(report["deployment"])),
    }
    flags = (BATCHING_FLAGS if batching else ()) + (XLA_FLAGS if xla else ())
    for file in [*FILES, "batching_parameters.txt"] if batching else FILES:
        if not (directory / file).exists():
            text = _with_flags((TEMPLATES / file).read_text(encoding="utf-8"), flags)
            write_atomically(directory / file, _fill(text, values).encode(), folder)
    page, template = directory / PAGE, (TEMPLATES / PAGE).read_text(encoding="utf-8")
    mark = template.splitlines()[0]
    if not page.exists() or page.read_bytes().startswith(mark.encode()):
        values = page_values(name, report, batching, xla)
        write_atomically(page, _fill(template, values).encode(), folder)
    return list(_misfits(directory, report["deployment"], batching, xla))


def cluster_label(name):
    """The model's name as a valid name in Kubernetes: a DNS label of RFC 1035."""
    label = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return (label if label[:1].isalpha() else f"model-{label}")[:63].rstrip("-")


def memory_needed(known):
    """Bytes of memory that a server needs: twice the measured peak and one request of maximum size.

    The peak counts twice: a new version is loaded and warmed up while the old one answers.
    """
    return 2 * (known["memory"]["peak_bytes"] or DEFAULT_PEAK) + known["limits"].get(
        "largest_request_bytes", 0
    )


def memory_limit(known):
    """The limit of memory for a server in MiB: the memory needed, rounded up to 256."""
    return -(-memory_needed(known) // MEMORY_STEP) * MEMORY_STEP // 2**20


def _misfits(directory, known, batching, xla):
    """Yields lines about settings in the user's files that do not fit this version."""
    limit = known["limits"]["max_batch_size"]
    flags = {"--enable_batching": batching, "--xla_cpu_compilation_enabled": xla}
    for file in (COMPOSE, KUBERNETES):
        text = (directory / file).read_text(encoding="utf-8", errors="replace")
        for flag, wanted in flags.items():
            if (flag in text) != wanted:
                must = "must" if wanted else "must not"
                yield f"{file} {must} have {flag} for this version; it is yours to change"
        match = re.search(MEMORY_LIMITS[file], text)
        if match and int(match[1]) * 2**20 < memory_needed(known):
            yield (
                f"the limit of memory in {file} must be at least {memory_limit(known)} MiB for "
                f"this version, it is {match[1]}; it is yours to change"
            )
    if batching:
        text = (directory / "batching_parameters.txt").read_text(encoding="utf-8", errors="replace")
        match = re.search(r"max_batch_size\s*{\s*value\s*:\s*(\d+)", text)
        if match and int(match[1]) > limit:
            yield (
                f"max_batch_size in batching_parameters.txt must be at most {limit} for this "
                f"version, it is {match[1]}; it is yours to change"
            )


def facts(service, directory, texts, reference):
    """The "deployment" part of a version's report, for JSON: limits, FLOPs, memory, latency, a
    sample.

    The `texts` measure latency; the first one is the sample in README.md, with its `reference`.
    """
    import tensorflow as tf

    import tfformer

    ids = service.tokenizer.encode_source(tf.constant(texts))
    latency = measure_latency(directory, texts, service.max_batch_size, service.xla)
    return {
        "exported": str(date.today()),
        "tfformer": tfformer.__version__,
        "tensorflow": tf.__version__,
        "dtype": service.dtype or "float32",
        "limits": service.limits(),
        "flops": service.flops(),
        "page": service.page()._asdict(),
        "memory": {"peak_bytes": latency.pop("peak_bytes")},
        "latency": latency,
        "sample": texts[0],
        "sample_reference": reference,
        "sample_source_ids": ids[0, : service.max_source_length].numpy().tolist(),
        "sample_source_tokens": len(ids.flat_values) / len(texts),
    }


def measure_latency(directory, texts, maximum, xla=False):
    """Measures a request: {"milliseconds": {rows: median}, "machine": in words, "peak_bytes"}.

    Requests go through the server's loader with the threads of docker-compose.yml: one thread per
    operation, and as many operations in parallel as there are cores.
    """
    import numpy as np
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    from ..serving.model import Model

    cores, medians = os.cpu_count(), {}
    model = Model(
        "model", 1, directory, None, intra_op_threads=1, inter_op_threads=cores, xla=xla,
        warm_up=False,  # only `serving_default` runs, and its first request is not counted
    )  # fmt: skip
    try:
        for rows in sorted({min(rows, maximum) for rows in LATENCY_BATCHES}):
            request = predict_pb2.PredictRequest()
            texts_of = np.resize(np.array(texts, object), rows)
            request.inputs["text"].CopyFrom(tf.make_tensor_proto(texts_of, tf.string))
            times = []
            while len(times) <= LATENCY_ROUNDS and sum(times) < LATENCY_SECONDS:
                start = time.perf_counter()
                model.predict(request)
                times.append(time.perf_counter() - start)
            # The first only warms up.
            medians[str(rows)] = round(1e3 * statistics.median(times[1:] or times), 1)
            if sum(times) >= LATENCY_SECONDS:
                break
        peak = model.worker.peak_bytes
    finally:
        model.close()
    machine = f"{platform.machine()}, {cores} cores, {platform.system()}, {date.today()}"
    return {"milliseconds": medians, "machine": machine, "peak_bytes": peak}


def page_values(name, report, batching, xla):
    """{name: text} for the placeholders @name@ in `templates/README.md`."""
    known, signatures = report["deployment"], report["graph"]["signatures"]
    page, latency, text = known["page"], known["latency"]["milliseconds"], known["sample"]
    left_out = "".join(f"\n- {what}" for what in report["not_compared"])
    rows, curls = [], []
    for signature, parts in signatures.items():
        inputs = [_described(key, info, parts["defaults"]) for key, info in parts["inputs"].items()]
        outputs = [_described(key, info) for key, info in parts["outputs"].items()]
        rows.append(f"| `{signature}` | {'; '.join(inputs)} | {'; '.join(outputs)} |")
        if signature != "serving_default":
            asked = {"signature_name": signature, "inputs": _example_inputs(parts, known)}
            curls.append(curl(name, asked))
    return {
        "name": name,
        "version": Path(report["directory"]).name,
        "exported": known["exported"],
        "tfformer": known["tfformer"],
        "tensorflow": known["tensorflow"],
        "batching": BATCHING if batching else NO_BATCHING,
        "server": "a TensorFlow Serving that is started with XLA on, as\n`docker-compose.yml` does"
        if xla
        else "a stock\nTensorFlow Serving",
        "minimum": "2.17" if known["dtype"] == "int8" else "2.14",
        "xla": " --xla" if xla else "",
        "curl": curl(name, instances(text, signatures["serving_default"]["defaults"])),
        "curls": "\n".join(curls),
        "signatures": "\n".join(rows),
        "about": page["about"],
        "command": page["command"],
        "asked": _fill("\n".join(page["asked"]), {"text": shlex.quote(text), "name": name}),
        "inputs": page["inputs"],
        "max_batch_size": f"{known['limits']['max_batch_size']:,}",
        "limits": _table(page["limits"]),
        "costs": _table(page["costs"]),
        "size": f"{sum(file['bytes'] for file in report['files'].values()) / 2**20:.1f}",
        "parameters": f"{report['weights']['parameters']:,}",
        "operations": f"{sum(report['graph']['ops'].values()):,}",
        "batches": " / ".join(latency),
        "milliseconds": " / ".join(f"{value:g}" for value in latency.values()),
        "sample": f"{known['sample_source_tokens']:.0f} tokens in the mean",
        "machine": known["latency"]["machine"],
        "memory": f"{memory_limit(known):,}",
        "peak": _peak(known["memory"]["peak_bytes"]),
        "largest": f"{known['limits'].get('largest_request_bytes', 0) / 2**20:,.0f}",
        "checks": str(len(report["checks"])),
        "quick": NOT_COMPARED.format(left_out) if left_out else "",
    }


def _example_inputs(signature, known):
    """The inputs of an example request to a signature: its defaults, and the sample."""
    text, reference = known["sample"], known["sample_reference"]
    first, *others = reference.split(" ")
    # Inputs with other names get the text.
    given = {
        "target": [reference],
        # If the reference is one word, half of it: as prefix, the whole would show nothing.
        "prefix": [first if others else first[: len(first) // 2]],
        "source_ids": [known["sample_source_ids"]],
    }
    if "question" in signature["inputs"]:  # the text may be a question, a tab, and a text
        question, _, rest = text.partition("\t")
        given |= {"question": [question], "text": [rest or text]}
    found = {}
    for key in signature["inputs"]:
        value = signature["defaults"].get(key, given.get(key, [text]))
        found[key] = float(f"{value:g}") if isinstance(value, float) else value
    return found


def _peak(measured):
    """The peak memory in MiB for README.md; without a measurement, the assumed value."""
    assumed = "" if measured else " (assumed: the kernel told no peak)"
    return f"{(measured or DEFAULT_PEAK) / 2**20:,.0f}{assumed}"


def _table(rows):
    """Rows of a Markdown table of two columns."""
    return "\n".join(f"| {what} | {words} |" for what, words in rows.items())


def instances(text, defaults):
    """The body of a request for one text. REST needs the inputs that have a default too."""
    others = {
        key: value[0] if isinstance(value, list) else value for key, value in defaults.items()
    }
    return {"instances": [{"text": text, **others} if others else text]}


def curl(name, body, host="localhost:8501"):
    """A curl command that sends a request to a model by REST."""
    quoted = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"curl -d {quoted} http://{host}/v1/models/{name}:predict"


def _described(key, info, defaults=None):
    """An input or output in words: its name, type, shape and default value."""
    sizes = ["B" if n == 0 else "?" if size is None else str(size)
             for n, size in enumerate(info["shape"] or [])]  # fmt: skip
    default = f" = {_shown(defaults[key])}" if defaults and key in defaults else ""
    return f"`{key}` {info['dtype']} [{', '.join(sizes)}]{default}"


def _with_flags(template, flags):
    """The template with the line `@flags@` replaced by these flags as items of its list."""

    def items(match):
        return "".join(f"{match[1]}- {flag}\n" for flag in flags)

    return re.sub(r"(?m)^( *)@flags@\n", items, template)


def _fill(template, values):
    """The template with each @name@ replaced in one pass: a value may contain another @name@."""
    return re.sub("@([a-z_]+)@", lambda match: values[match[1]], template)


def _shown(value):
    if isinstance(value, list):
        return json.dumps(value)
    return json.dumps(value) if isinstance(value, str) else f"{value:g}"
