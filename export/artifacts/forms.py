"""The forms of `serving_default`: the usual one, by XLA, with low latency.

Which is fastest depends on the processor, so each is measured where it is exported.
"""

import shutil
from pathlib import Path

# Options of a service, and of `export.saved_model`.
FORMS = {"xla": "--xla", "low_latency": "--low-latency"}

# Of the time of what is exported: a form that takes more is not said to be faster.
LESS = 0.95


def other_forms(service):
    """The forms that the family of a service has. Raises a UsageError if there is none."""
    from export.verification.errors import UsageError

    unknown = service.unknown(FORMS)
    if found := [form for form in FORMS if form not in unknown]:
        return found
    raise UsageError("--compare-forms is for a model that can be exported in several forms")


def measured(others, load, folder, texts, progress):
    """{form: milliseconds of a request, {rows: number}}, each exported into `folder` for that.

    Args:
        others: forms. One that the export's own options rule out is left out, and `progress` says
            why.
        load: a function of an option that gives the service with it.
    """
    from export.artifacts.deployment import measure_latency

    found = {}
    for form in others:
        try:
            service = load(**{form: True})
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
    """Lines that say what each form took, of a report's `deployment`, and which is fastest."""
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
