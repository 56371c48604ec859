"""The fitted numbers against measured operator times (needs FRAGBENCH_PROFILES)."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.costs.accuracy import BANDS, LAYER, LINEAR, band_errors, band_weights
from bench.costs.fit import cost_model, fit_elementwise, fit_gpu, main
from bench.costs.profiles import Profile, read_profiles
from bench.errors import SettingError
from bench.packaged import load_constants, load_gpu, load_model

CONSTANTS = load_constants()
ALLOWED_ERROR = 0.16


@pytest.fixture(scope="module")
def profiles() -> list[Profile]:
    folder = os.environ.get("FRAGBENCH_PROFILES")
    if not folder:
        pytest.skip("FRAGBENCH_PROFILES is unset: no measured operator times")
    return read_profiles(Path(folder))


def errors(profile: Profile, operators: tuple[str, ...]) -> dict[str, float]:
    costs = cost_model(profile, load_gpu(profile.gpu), CONSTANTS)
    by_band = band_errors(profile, costs, operators)
    return {band: error for band, error in by_band.items() if error is not None}


@pytest.mark.parametrize("operators", [LINEAR, LAYER], ids=["linear", "layer"])
def test_one_gpus_layer_is_within_16_percent_in_every_band(
    profiles: list[Profile], operators: tuple[str, ...]
) -> None:
    alone = [profile for profile in profiles if profile.tensor_parallel == 1]
    assert {profile.gpu for profile in alone} == {"a100_80gb", "h100_80gb"}
    for profile in alone:
        by_band = errors(profile, operators)
        assert set(by_band) == set(BANDS), profile.name
        assert max(by_band.values()) <= ALLOWED_ERROR, (profile.name, by_band)


def test_layers_shared_by_gpus_are_as_near_though_not_fitted(profiles: list[Profile]) -> None:
    for profile in profiles:
        if profile.tensor_parallel > 1:
            by_band = errors(profile, LINEAR)
            assert max(by_band.values()) <= ALLOWED_ERROR, (profile.name, by_band)


def test_a_fit_to_one_model_holds_for_the_other(profiles: list[Profile]) -> None:
    gpu = load_gpu("a100_80gb")
    first, second = (p for p in profiles if p.gpu == gpu.name and p.tensor_parallel == 1)
    for train, test in ((first, second), (second, first)):
        costs = cost_model(test, fit_gpu(gpu, [train]), CONSTANTS)
        by_band = band_errors(test, costs, LINEAR)
        assert max(error for error in by_band.values() if error is not None) <= ALLOWED_ERROR


def test_conf_holds_the_numbers_that_the_fit_gives(profiles: list[Profile]) -> None:
    alone = [profile for profile in profiles if profile.tensor_parallel == 1]
    gpus = {}
    for name in ("a100_80gb", "h100_80gb"):
        conf = load_gpu(name)
        gpus[name] = fitted = fit_gpu(conf, [p for p in alone if p.gpu == name])
        assert conf.compute_efficiency == pytest.approx(fitted.compute_efficiency, abs=6e-4)
        assert conf.bandwidth_efficiency == pytest.approx(fitted.bandwidth_efficiency, abs=6e-4)
        assert conf.operator_overhead_us == pytest.approx(fitted.operator_overhead_us, abs=6e-3)
    constants = fit_elementwise(gpus, alone, CONSTANTS)
    for field in ("elementwise_bandwidth_efficiency", "elementwise_overhead_share"):
        assert getattr(CONSTANTS, field) == pytest.approx(getattr(constants, field), abs=6e-4)


def test_the_fit_finds_the_numbers_that_made_a_profile() -> None:
    truth = replace(
        load_gpu("a100_80gb"),
        compute_efficiency=0.6,
        bandwidth_efficiency=0.9,
        operator_overhead_us=3.0,
    )
    tokens = np.array([1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096], dtype=np.int64)
    profile = Profile("made", truth.name, load_model("llama2_7b"), 1, tokens, {})
    costs = cost_model(profile, truth, CONSTANTS)
    rows = [costs.layer_operator_s(int(count)) for count in tokens]
    profile.seconds.update({name: np.array([row[name] for row in rows]) for name in LAYER})

    fitted = fit_gpu(load_gpu("a100_80gb"), [profile])
    assert fitted.compute_efficiency == pytest.approx(0.6)
    assert fitted.bandwidth_efficiency == pytest.approx(0.9)
    assert fitted.operator_overhead_us == pytest.approx(3.0)
    by_band = band_errors(profile, cost_model(profile, fitted, CONSTANTS), LAYER)
    assert by_band == pytest.approx(dict.fromkeys(BANDS, 0.0), abs=1e-6)


def test_the_command_prints_the_numbers_of_conf(
    profiles: list[Profile], capsys: pytest.CaptureFixture[str]
) -> None:
    assert profiles
    assert main([os.environ["FRAGBENCH_PROFILES"]]) == 0
    printed = capsys.readouterr().out
    for name in ("a100_80gb", "h100_80gb"):
        gpu = load_gpu(name)
        assert f"{name}: compute_efficiency {gpu.compute_efficiency:.3f}" in printed
    assert "| h100_llama2_7b, 8 GPU |" in printed


def test_the_command_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FRAGBENCH_PROFILES", raising=False)
    assert main([]) == 2
    assert "FRAGBENCH_PROFILES" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 2
    assert "no profile" in capsys.readouterr().err


def test_a_folder_without_profiles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no profile"):
        read_profiles(tmp_path)


def test_a_profile_of_an_unknown_gpu_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b200_llama_linear.csv").write_text("num_tokens\n1\n")
    with pytest.raises(SettingError, match=r"b200_llama_linear\.csv is of an unknown GPU"):
        read_profiles(tmp_path)


def test_every_band_weighs_the_same_however_many_counts_it_has() -> None:
    weights = band_weights(np.array([1, 2, 3, 16, 17, 5000], dtype=np.int64))
    assert weights.tolist() == [0.25, 0.25, 0.25, 0.25, 1, 1]
