"""The class of Locust's users. What they do is their worker's to say."""

from __future__ import annotations

from collections.abc import Callable

import locust
from locust.exception import StopUser


def user_class(work: Callable[[], None]) -> type[locust.User]:
    """Users that do `work` once. Master and workers know them by one name."""

    class Client(locust.User):
        @locust.task
        def go(self) -> None:
            work()
            raise StopUser

    return Client
