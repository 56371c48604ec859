"""Wrong settings are told in a sentence before anything is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import SettingError
from bench.load.command import main
from bench.load.payload import Payload, load_settings
from bench.load.settings import LoadSettings
from tests.bench.load.conftest import Serve

NOBODY = "http://127.0.0.1:1"

WRONG = [
    ("url=127.0.0.1:8000", "load.url=127.0.0.1:8000 is no address of a server"),
    ("url=http://127.0.0.1:x", "is no address of a server"),
    ("endpoint=embeddings", "load.endpoint=embeddings is unknown"),
    ("prompt_as=audio", "load.prompt_as=audio is unknown"),
    ("users=0", "load.users=0 is out of range"),
    ("users=many", "load.users=many has the wrong type"),
    ("processes=0", "load.processes=0 is out of range"),
    ("timeout_s=0", "load.timeout_s=0.0 is out of range"),
    ("load.leave.share=1.5", "load.leave.share=1.5 is out of range"),
    ("leave.kinds=[bored]", "load.leave.kinds=bored is unknown"),
    ("leave.after_s=[2,1]", "load.leave.after_s=[2.0, 1.0] is no range"),
    ("leave.after_tokens=[0,1]", "load.leave.after_tokens=[0, 1] is no range"),
    ("retries.limit=-1", "load.retries.limit=-1 is out of range"),
    ("slow_readers.tokens_per_s=0", "load.slow_readers.tokens_per_s=0.0 is out of range"),
    ("load.usrs=3", "'load.usrs' is no setting"),
]


@pytest.mark.parametrize(("argument", "told"), WRONG)
def test_a_wrong_setting_is_told(argument: str, told: str) -> None:
    with pytest.raises(SettingError) as error:
        main([f"url={NOBODY}", argument] if not argument.startswith("url") else [argument])
    assert told in str(error.value)


def test_a_server_is_needed(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="needs a server: give url="):
        main([f"out={tmp_path / 'run'}"])


def test_a_server_that_does_not_answer_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="does not answer"):
        main([f"url={NOBODY}", f"out={tmp_path / 'run'}"])
    assert not (tmp_path / "run").exists()


def test_one_of_several_models_must_be_named(serve: Serve) -> None:
    url = serve(models=["a", "b"]).url
    with pytest.raises(SettingError, match=r"serves several models: choose one .* of a, b"):
        main([f"url={url}"])
    with pytest.raises(SettingError, match=r"load.model=c is not served at .*: choose from a, b"):
        main([f"url={url}", "model=c"])


def test_a_wrong_key_is_told(serve: Serve) -> None:
    with pytest.raises(SettingError, match=r"refuses load.api_key \(HTTP 401\)"):
        main([f"url={serve(api_key='right').url}", "api_key=wrong"])


def test_beams_cannot_be_asked_for(serve: Serve) -> None:
    with pytest.raises(SettingError, match="beams, which cannot be asked for over HTTP"):
        main([f"url={serve().url}", "workload=beam"])


def test_a_workload_setting_is_told(serve: Serve) -> None:
    with pytest.raises(SettingError, match=r"workload.rate_rps"):
        main([f"url={serve().url}", "workload.rate_rps=-1"])


def test_what_travels_comes_back_whole() -> None:
    payload = Payload(LoadSettings(url="http://x", users=3), {"a": 1}, 7, None, 100, 2, 5)
    assert Payload.read(payload.plain()) == payload
    assert load_settings(payload.plain()["load"]) == payload.load


def test_the_help_has_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    for name in LoadSettings.__dataclass_fields__:
        assert f"  {name}=" in said
