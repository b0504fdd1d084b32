"""What a session may set."""

from expectations import Expect, ExpectFail, cases, check

from tensorframes.errors import ProgramError
from tensorframes.settings import Settings, read_settings


@cases(
    Expect({}, Settings(8 * 2**20, 1, None), "nothing is set"),
    Expect({"tensorframes.gpu.concurrency": "2", "other": "x"}, Settings(gpu_concurrency=2), "one is"),
    Expect({"tensorframes.shipping.bytes": "1", "tensorframes.threads": "4"}, Settings(1, 1, 4), "two are"),
    Expect({"spark.tensorframes.threads": "4"}, Settings(threads=4), "as spark-submit passes it on"),
    Expect({"spark.tensorframes.threads": "4", "tensorframes.threads": "2"}, Settings(threads=2), "the session's own wins"),
)
def test_settings(case):
    check(lambda given: read_settings(given.get), case)


@cases(
    ExpectFail(
        {"tensorframes.gpu.concurrency": "0"},
        ProgramError,
        "the setting tensorframes.gpu.concurrency is '0', but an integer from 1 to 2147483647 is wanted.",
        "none",
    ),
    ExpectFail(
        {"spark.tensorframes.shipping.bytes": "8m"},
        ProgramError,
        "the setting spark.tensorframes.shipping.bytes is '8m', but an integer from 1 to 2147483647 is wanted.",
        "a unit",
    ),
)
def test_settings_that_cannot_be_meant(case):
    check(lambda given: read_settings(given.get), case)
