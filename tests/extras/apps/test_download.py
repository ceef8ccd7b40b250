"""The download of a package: its seconds, and the limits of the app stores."""

from __future__ import annotations

import pytest

from edgecompress.extras.apps import download


def test_seconds_are_bits_over_the_speed() -> None:
    assert download.seconds(5_000_000) == {"5 Mbit/s": 8.0, "25 Mbit/s": 1.6, "100 Mbit/s": 0.4}
    assert download.line(5_000_000) == "5 MB to download: 8 s at 5 Mbit/s, 1.6 s at 25 Mbit/s, 0.4 s at 100 Mbit/s"


@pytest.mark.parametrize(
    ("packager", "options", "megabytes", "says"),
    [
        ("android", {}, 200, ""),
        ("android", {}, 201, "200 MB in an app's base module; add ai_pack=true; packed=true may make it smaller"),
        ("android", {"ai_pack": True, "packed": True}, 1500, ""),
        ("android", {"ai_pack": True, "packed": True}, 1501, "1,500 MB in an AI pack"),
        ("ios", {"packed": True}, 201, "more than 200 MB over a mobile network"),
        ("ios", {}, 4001, "apps of less than 4,000 MB, unpacked"),
        ("tar", {}, 9000, ""),
    ],
)
def test_a_store_warns_of_what_it_refuses(packager: str, options: dict[str, bool], megabytes: int, says: str) -> None:
    found = download.warning(packager, options, megabytes * 10**6)
    assert found.endswith(says) if says else not found
