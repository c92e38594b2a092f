"""Measures the forms of `serving_default`: the usual one, XLA, and low latency.

Which form is fastest depends on the processor, so they are measured on the exporting machine.
"""

import shutil
from pathlib import Path

# {form: option of `export.saved_model`}. The first two are also options of a service.
FORMS = {"xla": "--xla", "low_latency": "--low-latency", "usual": "--no-low-latency"}

# A form counts as faster only if it takes at most this share of the exported form's time.
LESS = 0.95


def other_forms(service):
    """The forms besides that of the service. Raises a UsageError if its family has no others."""
    from ..verification.errors import UsageError

    if service.unknown({"xla": True, "low_latency": True}):
        raise UsageError("--compare-forms is for a model that can be exported in several forms")
    return ["xla", "usual" if service.low_latency else "low_latency"]


def measured(others, load, folder, texts, progress):
    """Exports each form into `folder` and measures it. Returns {form: {rows: milliseconds}}.

    `load` takes the options of a form and returns the service. A form that the export's options
    exclude is skipped, and `progress` gets the reason.
    """
    from .deployment import measure_latency

    found = {}
    for form in others:
        try:
            service = load(**({} if form == "usual" else {form: True}))
        except ValueError as error:
            progress(f"not measured with {FORMS[form]}: {error}")
            continue
        progress(f"measuring how long it takes with {FORMS[form]} ...")
        path = Path(folder, form)
        service.save(str(path), ["serving_default"])
        known = measure_latency(path, texts, service.max_batch_size, service.xla)
        found[form] = known["milliseconds"]
        shutil.rmtree(path)
    return found


def compared(known):
    """Yields lines with the time of each form in a report's `deployment`, and the fastest form."""
    own, others = known["latency"]["milliseconds"], known.get("other_forms_milliseconds", {})
    times = {"as exported": own, **{FORMS[form]: took for form, took in others.items()}}
    for rows in own if others else ():
        shown = [f"{name} {took[rows]:g} ms" for name, took in times.items()]
        fastest = min(times, key=lambda name: times[name][rows])
        if times[fastest][rows] > LESS * own[rows]:
            fastest = "as exported"
        yield f"a request of {rows}: {', '.join(shown)}; fastest here: {fastest}"
    if "xla" in others:
        yield "(--xla is for a server of your own.)"
