"""Settings: what a user of Spark may set for a session, beside what the verbs take.

Knows no Spark: a function from a setting's name to its text is enough. The one law: a setting that cannot be meant is refused where the
verb is called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorframes.errors import ProgramError

SHIPPED_BYTES = "tensorframes.shipping.bytes"
GPU_CONCURRENCY = "tensorframes.gpu.concurrency"
THREADS = "tensorframes.threads"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a session.

    Attributes:
        shipped_bytes: how many bytes of programs and constants travel inside tasks; what is more goes by files.
        gpu_concurrency: how many tasks run on one GPU at a time.
        threads: how many threads TensorFlow has in a worker; None: as many as the task has cores.
    """

    shipped_bytes: int = 8 * 2**20
    gpu_concurrency: int = 1
    threads: int | None = None


def read_settings(get: Callable[[str], str | None]) -> Settings:
    """Read the settings, each by its name or by that with "spark." before it, as which alone ``spark-submit`` passes them on.

    Raises:
        ProgramError: one is no positive integer below 2³¹.

    Example:
        >>> read_settings({"tensorframes.threads": "2"}.get)
        Settings(shipped_bytes=8388608, gpu_concurrency=1, threads=2)
    """
    default = Settings()
    return Settings(
        _positive(get, SHIPPED_BYTES, default.shipped_bytes) or default.shipped_bytes,
        _positive(get, GPU_CONCURRENCY, default.gpu_concurrency) or default.gpu_concurrency,
        _positive(get, THREADS, None),
    )


def _positive(get: Callable[[str], str | None], name: str, default: int | None) -> int | None:
    for key in (name, f"spark.{name}"):
        text = get(key)
        if text is None:
            continue
        if not (text.isascii() and text.isdecimal() and 1 <= int(text) < 2**31):
            raise ProgramError(f"the setting {key} is {text!r}, but an integer from 1 to {2**31 - 1} is wanted.")
        return int(text)
    return default
