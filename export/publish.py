"""One rename makes a version visible to the server, and its report follows."""

from tfformer.files import sync, write_json


def publish(model, report, directory, progress):
    """Renames `model` to the next version, and the report after it; returns the version.

    The report is on the disk before anything is visible: a full disk publishes nothing. Another
    exporter may be a step ahead.
    """
    beside = model.with_name("report.json")
    while True:
        taken = [int(path.name) for path in directory.iterdir() if path.name.isdecimal()]
        version = directory / str(max(taken, default=0) + 1)
        report.directory = str(version)
        write_json(beside, report.to_dict())
        try:
            model.rename(version)
        except OSError:
            if not version.exists():
                raise
            continue
        break
    try:
        beside.replace(directory / f"{version.name}.report.json")
        sync(directory)
    except OSError as error:  # the model is served by now
        progress(f"warning: {version} is published, its report is not safe on the disk: {error}")
    return version
