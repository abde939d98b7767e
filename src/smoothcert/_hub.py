"""Whether the Hugging Face hub can be reached. Its libraries retry for half a minute before they say that it cannot."""

from __future__ import annotations

import os
import socket
from functools import cache
from urllib.parse import urlsplit
from urllib.request import getproxies

_SECONDS = 3.0


@cache
def hub_is_reachable() -> bool:
    """Whether a connection to the hub can be opened. Behind a proxy we cannot know, so we assume that it can."""
    if os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on"):
        return False
    if getproxies():
        return True
    endpoint = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    try:
        socket.create_connection((endpoint.hostname or "", endpoint.port or 443), timeout=_SECONDS).close()
    except OSError:
        return False
    return True


def unreachable(name: str) -> str:
    """Why something from the hub is not there."""
    return (
        f"there is no folder {name} here, it was not downloaded before, and the Hugging Face hub cannot be reached "
        "from here"
    )
