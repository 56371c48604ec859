"""Runs logged to MLflow, where it is installed."""

from __future__ import annotations

import hashlib
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.errors import SettingError
from bench.report import quantities as q
from bench.report.page import Contents
from bench.report.results import Run, flat

STORE_VARIABLE = "MLFLOW_TRACKING_URI"
CONTENT_TAG = "fragbench.content"
"""A run's files, hashed: what was logged once is not logged again."""
MOST_TEXT = 6000
"""Characters of a parameter's value that MLflow keeps."""
MOST_PARAMS = 100
"""Parameters that it takes at a time."""
LABELS = ("backend", "engine", "workload", "model", "gpu", "device", "time", "status", "folder")
PAGE, SETTINGS = "report.html", "settings.yaml"
"""Artifacts. A file called config.yaml would make its folder look like a run."""


def write_mlflow(shown: Contents, folder: Path) -> list[Path]:
    """Each run of `shown` as one of MLflow's, in the store that MLFLOW_TRACKING_URI names, else in
    `folder`/mlflow.db. Raises SettingError where MLflow is not installed."""
    mlflow = load_mlflow()
    place = os.environ.get(STORE_VARIABLE) or f"sqlite:///{(folder / 'mlflow.db').absolute()}"
    client = mlflow.MlflowClient(tracking_uri=place)
    experiment = _experiment(client, shown.title, folder)
    for run in shown.each:
        content = hashlib.sha256(f"{run.summary}{run.config_text}".encode()).hexdigest()[:32]
        if not client.search_runs([experiment], f"tags.`{CONTENT_TAG}` = '{content}'"):
            _log(client, experiment, run, content)
    return [] if os.environ.get(STORE_VARIABLE) else [folder / "mlflow.db"]


def _experiment(client: Any, name: str, folder: Path) -> str:
    """The experiment's id. A store of our own keeps artifacts beside it."""
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    own = None if os.environ.get(STORE_VARIABLE) else (folder / "mlartifacts").absolute().as_uri()
    return str(client.create_experiment(name, artifact_location=own))


def _log(client: Any, experiment: str, run: Run, content: str) -> None:
    """Settings as parameters, quantities as metrics (none for what is undefined), the settings file
    and the folder's report as artifacts."""
    from mlflow.entities import Metric, Param

    started_ms = _started_ms(run)
    labels = {key: getattr(run, key) for key in LABELS}
    made = client.create_run(
        experiment, start_time=started_ms, run_name=run.name, tags=labels | {CONTENT_TAG: content}
    )
    key = made.info.run_id
    params = [Param(_key(name), text[:MOST_TEXT]) for name, text in flat(run.config).items()]
    for first in range(0, len(params), MOST_PARAMS):
        client.log_batch(key, params=params[first : first + MOST_PARAMS])
    values = {each.column: each.read(run) for each in q.ALL}
    known = [Metric(k, v, started_ms or 0, 0) for k, v in values.items() if v is not None]
    client.log_batch(key, metrics=known)
    client.log_text(key, run.config_text, SETTINGS)
    page = run.path.joinpath(*[".."] * len(Path(run.folder).parts), PAGE)
    if page.is_file():
        client.log_artifact(key, str(page))
    client.set_terminated(key, "FINISHED" if run.completed else "FAILED")


def _key(name: str) -> str:
    """With no other letters than MLflow takes."""
    return re.sub(r"[^\w.:/ -]", "_", name)


def _started_ms(run: Run) -> int | None:
    try:
        started = datetime.fromisoformat(str(run.environment.get("started")))
    except ValueError:
        return None
    return round(1000 * started.timestamp())


def load_mlflow() -> Any:
    """The module. Raises SettingError where it is not installed."""
    try:
        import mlflow  # it takes seconds, and few have it
    except ImportError:
        raise SettingError(
            "to=mlflow needs MLflow, which is not installed: pip install 'fragbench[mlflow]'."
        ) from None
    return mlflow
