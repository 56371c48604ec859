"""Runs logged to MLflow: to a real store, where MLflow is installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.errors import SettingError
from bench.exports.command import main
from bench.exports.mlflow_runs import STORE_VARIABLE
from bench.report.results import flat

WriteRun = Callable[..., Path]
IS_INSTALLED = find_spec("mlflow") is not None


def test_settings_get_dotted_names() -> None:
    settings = {"a": {"b": 1, "c": {"d": None}}, "e": [1, "x"], "f": "text"}
    assert flat(settings) == {"a.b": "1", "a.c.d": "null", "e": '[1, "x"]', "f": "text"}


@pytest.mark.skipif(IS_INSTALLED, reason="mlflow is installed")
def test_without_mlflow_that_is_said_and_nothing_written(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("run")
    with pytest.raises(SettingError, match=r"needs MLflow.*pip install 'fragbench\[mlflow\]'"):
        main([str(tmp_path), "to=csv,mlflow"])
    assert not (tmp_path / "exports").exists()


@pytest.mark.long
@pytest.mark.skipif(not IS_INSTALLED, reason="mlflow is not installed")
@pytest.mark.filterwarnings("ignore")  # of SQLAlchemy, which MLflow keeps its store with
def test_each_run_is_logged_once_with_settings_figures_and_report(
    write_run: WriteRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    monkeypatch.delenv(STORE_VARIABLE, raising=False)
    write_run("a", "paged", requests_per_s=2.0)
    write_run("b", "vmm", memory_bound=None, status="failed")
    (tmp_path / "report.html").write_text("<p>a report</p>")
    out = tmp_path / "x"
    for _ in range(2):
        assert main([str(tmp_path), "to=mlflow", f"out={out}"]) == 0
    client = MlflowClient(tracking_uri=f"sqlite:///{out / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(tmp_path.name)
    assert experiment is not None
    found = {run.data.tags["folder"]: run for run in client.search_runs([experiment.experiment_id])}
    assert sorted(found) == ["a", "b"]
    logged = found["a"]
    assert logged.data.params["backend.name"] == "paged"
    assert logged.data.metrics["requests_per_s"] == 2.0
    assert "token_states_share" not in found["b"].data.metrics
    assert [found[name].info.status for name in "ab"] == ["FINISHED", "FAILED"]
    files = {file.path for file in client.list_artifacts(logged.info.run_id)}
    assert files == {"settings.yaml", "report.html"}
