"""`fragbench serve`'s settings: what is wrong is one sentence, before anything starts."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from bench.cli import main
from bench.errors import SettingError
from bench.serve.settings import KEY_VARIABLE, ServeSettings, api_key, check_serve
from tests.bench.serve.running import ON_CPU


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    return tmp_path


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The sentence, with nothing written."""
    assert main(["serve", *arguments, *ON_CPU]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert os.listdir() == []
    return said.err


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["port=70000"], ["serve.port=70000", "65,535"]),
        (["engine=vllm"], ["engine=vllm has a server of its own", "`fragbench load`"]),
        (["port=x"], ["serve.port=x", "whole number"]),
        (["serve.prot=1"], ["serve.prot"]),
        (["request_timeout_s=0"], ["serve.request_timeout_s=0"]),
        (["request_timeout_s=nan"], ["serve.request_timeout_s=nan"]),
        (["max_queue=0"], ["serve.max_queue=0", "1 to"]),
        (["max_body_bytes=0"], ["serve.max_body_bytes=0"]),
        (["max_body_bytes=1000000000"], ["serve.max_body_bytes=1000000000"]),
        (["body_timeout_s=inf"], ["serve.body_timeout_s=inf"]),
        (["drain_s=-1"], ["serve.drain_s=-1"]),
        (["stream_buffer_tokens=0"], ["serve.stream_buffer_tokens=0"]),
        (["time_scale=0"], ["time_scale=0"]),
        (["host="], ["serve.host", "empty"]),
        (["tokenizer=nowhere.json"], ["serve.tokenizer=nowhere.json", "bytes"]),
        (["host=203.0.113.1"], ["serve.host=203.0.113.1", "listened on"]),
        ([f"host='{'é' * 64}'"], ["serve.host=éé", "listened on"]),
        (["host=no.such.host.invalid"], ["serve.host=no.such.host.invalid", "listened on"]),
        (["--wrong"], ["--wrong", "fragbench serve --help"]),
        (["--multirun", "backend=paged,bucketed"], ["one engine"]),
        (["backend=paged", "backend.block_size=0", "port=0"], ["block_size"]),
    ],
)
def test_a_wrong_setting_is_one_sentence(
    arguments: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = refusal(capsys, *arguments)
    for part in parts:
        assert part in sentence


def test_a_port_that_is_taken_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sentence = refusal(capsys, f"port={port}")
    assert f"serve.port={port}" in sentence
    assert "port=0" in sentence


def test_the_key_is_in_the_setting_or_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert api_key(ServeSettings()) is None
    monkeypatch.setenv(KEY_VARIABLE, "there")
    assert api_key(ServeSettings()) == "there"
    assert api_key(ServeSettings(api_key="here")) == "here"


@pytest.mark.parametrize("key", ["secret\n", "sec\nret", " secret", "sec\tret"])
def test_a_key_that_no_client_can_send_is_refused_and_not_shown(
    key: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with pytest.raises(SettingError) as caught:
        check_serve(ServeSettings(api_key=key))
    assert "serve.api_key" in str(caught.value)
    monkeypatch.setenv(KEY_VARIABLE, key)
    sentence = refusal(capsys, "port=0")
    assert KEY_VARIABLE in sentence
    assert "ret" not in sentence


def test_help_names_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    said = capsys.readouterr().out
    for name in ServeSettings.__dataclass_fields__:
        assert name in said


def test_settings_are_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--cfg", "job", "-p", "serve", "port=8123"]) == 0
    assert "port: 8123" in capsys.readouterr().out
