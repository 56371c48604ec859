"""Which Python runs vLLM, and what is said where none can."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from bench.errors import SettingError
from bench.vllm import python
from bench.vllm.python import ENVIRONMENT, TESTED, find_vllm
from bench.vllm.settings import VllmSettings
from tests.bench.vllm.environments import pretend
from tests.virtual_gpu import skip_without_virtual_gpu


@pytest.fixture(autouse=True)
def _asks_anew() -> None:
    python._asked.cache_clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a test, in a checkout without an environment for vLLM."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(python, "MADE", Path("none/bin/python"))
    return tmp_path


def test_a_tested_version_runs_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(TESTED[0], folder / "site", monkeypatch)
    found = find_vllm(VllmSettings(), virtual=False)
    assert (found.executable, found.vllm) == (sys.executable, TESTED[0])


def test_an_untested_version_gets_one_sentence_and_runs_if_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend("0.99.0", folder / "site", monkeypatch)
    with pytest.raises(
        SettingError, match=r"vLLM 0\.99\.0 .* not among .* 0\.33\.0.*untested=true"
    ):
        find_vllm(VllmSettings(), virtual=False)
    assert find_vllm(VllmSettings(untested=True), virtual=False).vllm == "0.99.0"


def test_without_vllm_one_sentence_says_how_to_get_it(folder: Path) -> None:
    with pytest.raises(SettingError, match=r"make vllm-env.*vllm\.python"):
        find_vllm(VllmSettings(), virtual=False)


def test_a_python_without_vllm_is_refused(folder: Path) -> None:
    with pytest.raises(SettingError, match="has no vLLM: install"):
        find_vllm(VllmSettings(python=sys.executable), virtual=False)


def test_what_is_no_python_is_refused(folder: Path) -> None:
    with pytest.raises(SettingError, match="is no program"):
        find_vllm(VllmSettings(python="nowhere"), virtual=False)
    with pytest.raises(SettingError, match="cannot run fragbench"):
        find_vllm(VllmSettings(python="/bin/false"), virtual=False)


def test_what_vllm_starts_finds_the_virtual_gpu_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_virtual_gpu()
    pretend(TESTED[0], folder / "site", monkeypatch)
    found = find_vllm(VllmSettings(), virtual=True)
    assert found.libraries is not None
    assert found.environment(virtual=False) == ENVIRONMENT
    assert str(found.libraries.cuda) in found.environment(virtual=True)["LD_PRELOAD"]


def test_another_pytorch_than_vllm_pins_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(TESTED[0], folder / "site", monkeypatch, wants="torch==0.1.0")
    with pytest.raises(SettingError, match=r"made for PyTorch 0\.1\.0 and would get .*PYTHONPATH"):
        find_vllm(VllmSettings(), virtual=False)
    assert find_vllm(VllmSettings(untested=True), virtual=False).vllm == TESTED[0]


def test_the_pytorch_that_vllm_pins_is_known_in_every_build(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = version("torch").partition("+")[0]
    wants = f"torch=={here}+cu1; python_version >= '3'"
    pretend(TESTED[0], folder / "site", monkeypatch, wants=wants)
    found = find_vllm(VllmSettings(), virtual=False)
    assert found.torch == found.pinned_torch == here
