"""Wrong settings are told in a sentence before anything is sent."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from bench.errors import SettingError
from bench.load.command import main
from bench.load.models import served_model
from bench.load.payload import Payload, load_settings
from bench.load.ports import check_ports
from bench.load.settings import (
    LoadSettings,
    RetrySettings,
    check_load,
    on_clients_clock,
)
from tests.bench.load.conftest import Serve

NOBODY = "http://127.0.0.1:1"

WRONG = [
    ("url=127.0.0.1:8000", "load.url=127.0.0.1:8000 is no address of a server"),
    ("url=http://127.0.0.1:x", "is no address of a server"),
    ("url=http://h/a b", "without spaces, ? and #"),
    ("url=http://h/a?x=1", "without spaces, ? and #"),
    ("url=http://me:secret@h", "load.url has a user or a password"),
    ('api_key="a\\nb"', "load.api_key has a line break, a space at an end"),
    ("api_key=schlüssel", "load.api_key has a line break, a space at an end"),
    ("master_host=10.0.0.2", "load.master_host=10.0.0.2 needs load.master_port"),
    ("processes=2 expect_workers=1", "load.expect_workers=1 is fewer than"),
    ("bind_host=192.0.2.1", "load.bind_host=192.0.2.1 is no address of this machine"),
    ("bind_host=nowhere.invalid", "load.bind_host=nowhere.invalid is no address"),
    ("endpoint=embeddings", "load.endpoint=embeddings is unknown"),
    ("prompt_as=audio", "load.prompt_as=audio is unknown"),
    ("processes=0", "load.processes=0 is out of range"),
    ("timeout_s=0", "load.timeout_s=0.0 is out of range"),
    ("retries.limit=-1", "load.retries.limit=-1 is out of range"),
]


def check(*arguments: str) -> None:
    section = OmegaConf.from_dotlist(list(arguments))
    load = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(LoadSettings), section))
    assert isinstance(load, LoadSettings)
    check_load(load)
    check_ports(load)


@pytest.mark.parametrize(("argument", "told"), WRONG)
def test_a_wrong_setting_is_told(argument: str, told: str) -> None:
    with pytest.raises(SettingError) as error:
        check(*argument.split(" ") if argument.startswith("processes") else (argument,))
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("processes=0", "load.processes=0 is out of range"),
        ("processes=many", "load.processes=many has the wrong type"),
        ("load.usrs=3", "'load.usrs' is no setting"),
        ("time_scale=2", "time_scale=2 is for modelled time"),
    ],
)
def test_the_command_tells(argument: str, told: str) -> None:
    with pytest.raises(SettingError) as error:
        main([f"url={NOBODY}", argument])
    assert told in str(error.value)


@pytest.mark.parametrize("setting", ["master_port", "web_port"])
def test_a_port_that_is_taken_is_told(setting: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingError, match=f"load.{setting}={port} cannot be listened at"):
            check(f"{setting}={port}", "web_ui=true")


@pytest.mark.parametrize("said", ["api_key=se-crét", "url=http://me:se-cret@h"])
def test_secrets_are_not_in_errors(said: str) -> None:
    with pytest.raises(SettingError) as error:
        check(said)
    assert "se-cret" not in str(error.value)


def test_clients_of_a_faster_engine_are_faster() -> None:
    """Five of the engine's seconds pass in one of theirs."""
    load = LoadSettings(
        timeout_s=100,
        retries=RetrySettings(backoff_s=2),
    )
    scaled = on_clients_clock(load, 5)
    assert (scaled.timeout_s, scaled.retries.backoff_s) == (20, 0.4)
    assert on_clients_clock(load, 1) == load


@pytest.mark.parametrize("more", [[], ["engine=vllm"]])
def test_a_server_is_needed(tmp_path: Path, more: list[str]) -> None:
    with pytest.raises(SettingError, match="needs a server: give url="):
        main([f"out={tmp_path / 'run'}", *more])


def test_a_server_that_does_not_answer_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="does not answer"):
        main([f"url={NOBODY}", f"out={tmp_path / 'run'}"])
    assert not (tmp_path / "run").exists()


def test_one_of_several_models_must_be_named(serve: Serve) -> None:
    url = serve(models=["a", "b"]).url
    with pytest.raises(SettingError, match=r"serves several models: choose one .* of a, b"):
        served_model(url, None, None)
    with pytest.raises(SettingError, match=r"load.model=c is not served at .*: choose from a, b"):
        served_model(url, None, "c")


def test_a_wrong_key_is_told(serve: Serve) -> None:
    with pytest.raises(SettingError, match=r"refuses load.api_key \(HTTP 401\)"):
        served_model(serve(api_key="right").url, "wrong", None)


def test_beams_cannot_be_asked_for(serve: Serve) -> None:
    with pytest.raises(SettingError, match="beams, which cannot be asked for over HTTP"):
        main([f"url={serve().url}", "workload=beam"])


def test_a_workload_setting_is_told(serve: Serve) -> None:
    with pytest.raises(SettingError, match=r"workload.rate_rps"):
        main([f"url={serve().url}", "workload.rate_rps=-1"])


def test_what_travels_comes_back_whole() -> None:
    payload = Payload(LoadSettings(url="http://x"), {"a": 1}, 7, None, 100, 2, 3, 5, 10.0)
    assert Payload.read(payload.plain()) == payload
    assert load_settings(payload.plain()["load"]) == payload.load


def test_the_help_has_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    for name in LoadSettings.__dataclass_fields__:
        assert f"  {name}=" in said
