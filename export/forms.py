"""The forms of `serving_default`: the usual one, by XLA, with low latency.

Which is fastest depends on the processor, so each is measured where it is exported.
"""

from pathlib import Path

# Options of a service, and of `export.saved_model`.
FORMS = {"xla": "--xla", "low_latency": "--low-latency"}


def other_forms(run, service, options):
    """{form: a service of the run in it} of those of `FORMS` that its family has.

    Args:
        run: a run directory.
        service: what it is exported as.
        options: of that one.

    Raises:
        RunError: a form does not go with the options.
    """
    from tfformer.run import load_service

    unknown = service.unknown(FORMS)
    return {
        form: load_service(run, **{**options, form: True}) for form in FORMS if form not in unknown
    }


def measured(others, folder, texts, progress):
    """{form: milliseconds of a request, {rows: number}}, each exported into `folder` for that."""
    from export.deployment import measure_latency

    found = {}
    for form, service in others.items():
        progress(f"measuring how long it takes with {FORMS[form]} ...")
        service.save(str(Path(folder, form)), ["serving_default"])
        known = measure_latency(Path(folder, form), texts, service.max_batch_size, service.xla)
        found[form] = known["milliseconds"]
    return found


def compared(known):
    """Lines that say what each form took, of a report's `deployment`, and which is fastest."""
    own, others = known["latency"]["milliseconds"], known.get("other_forms_milliseconds", {})
    times = {"as exported": own, **{FORMS[form]: took for form, took in others.items()}}
    for rows in own if others else ():
        shown = [f"{name} {took[rows]:g} ms" for name, took in times.items()]
        fastest = min(times, key=lambda name: times[name][rows])
        yield f"a request of {rows}: {', '.join(shown)}; fastest here: {fastest}"
    if "xla" in others:
        yield "(--xla is for a server of your own.)"
