"""What a server says of itself before it gets traffic: its models."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from bench.errors import SettingError

TIMEOUT_S = 10.0
OURS = "fragbench"
UNAUTHORIZED = (401, 403)


class Served(NamedTuple):
    """A model as its server calls it, whether that server is ours, and the vocabulary that it tells
    if it is."""

    name: str
    by_fragbench: bool
    vocab_size: int | None = None


def served_model(url: str, api_key: str | None, wanted: str | None) -> Served:
    """The model `wanted`, or the only one that is served.

    A server that does not list its models is believed to have the one wanted. Raises SettingError
    for a server that does not answer, and for a choice that it leaves open.
    """
    models = _list(url, api_key)
    if not models:
        if wanted is None:
            raise SettingError(
                f"load.url={url} does not say which models it serves: name one with load.model=..."
            )
        return Served(wanted, False)
    names = [str(model.get("id")) for model in models]
    if wanted is None and len(names) > 1:
        raise SettingError(
            f"load.url={url} serves several models: choose one with load.model=, of "
            f"{', '.join(names)}."
        )
    name = names[0] if wanted is None else wanted
    if name not in names:
        raise SettingError(
            f"load.model={wanted} is not served at {url}: choose from {', '.join(names)}."
        )
    model = models[names.index(name)]
    if model.get("owned_by") != OURS:
        return Served(name, False)
    told = model.get("vocab_size")
    return Served(name, True, told if isinstance(told, int) else None)


def _list(url: str, api_key: str | None) -> list[dict[str, Any]]:
    """The server's models; none where it has no such list."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    address = f"{url.rstrip('/').removesuffix('/v1')}/v1/models"
    try:
        with urlopen(Request(address, headers=headers), timeout=TIMEOUT_S) as answer:
            body = json.loads(answer.read())
    except HTTPError as error:
        error.close()
        if error.code in UNAUTHORIZED:
            raise SettingError(
                f"the server at {url} refuses load.api_key (HTTP {error.code}): give the right one."
            ) from error
        return []
    except (URLError, OSError) as error:
        why = getattr(error, "reason", error)
        raise SettingError(
            f"load.url={url} does not answer ({why}): start the server first, or mend the address."
        ) from error
    except ValueError:
        return []
    models = body.get("data") if isinstance(body, dict) else None
    listed = models if isinstance(models, list) else []
    return [model for model in listed if isinstance(model, dict)]
