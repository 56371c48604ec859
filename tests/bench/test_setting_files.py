"""What is written so that a run can be repeated has no keys in it."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from bench.setting_files import hidden, write_config, write_environment


def test_keys_are_not_written(tmp_path: Path) -> None:
    config = {"serve": {"api_key": "s1", "port": 8}, "load": {"api_key": "s2"}, "seed": 3}
    write_config(tmp_path, config)
    written = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert written == {"serve": {"api_key": None, "port": 8}, "load": {"api_key": None}, "seed": 3}
    assert config["load"] == {"api_key": "s2"}
    write_environment(tmp_path, {"command": ["fragbench", "api_key=s1"], "cpus": 2})
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment == {"command": ["fragbench", "api_key=***"], "cpus": 2}


def test_arguments_with_keys_are_hidden() -> None:
    assert hidden("++serve.api_key=s") == "++serve.api_key=***"
    assert hidden("load={api_key: s, users: 3}") == "load=***"
    assert hidden("load.processes=3") == "load.processes=3"
