"""The download of a package: its seconds over links of some speeds, and what the app stores say of its size."""

from __future__ import annotations

from collections.abc import Mapping

SPEEDS = (5, 25, 100)  # Mbit/s: a slow mobile link, a good one, a line at home
MB = 10**6
# What the stores take, in bytes. https://support.google.com/googleplay/android-developer/answer/9859372,
# https://developer.android.com/google/play/on-device-ai,
# https://developer.apple.com/help/app-store-connect/reference/maximum-build-file-sizes
BASE_MODULE, AI_PACK = 200 * MB, 1500 * MB
IOS_APP, CELLULAR = 4000 * MB, 200 * MB


def seconds(size: int) -> dict[str, float]:
    """{"5 Mbit/s": seconds} that so many bytes take."""
    return {f"{speed} Mbit/s": round(size * 8 / (speed * MB), 3) for speed in SPEEDS}


def line(size: int) -> str:
    """Both in words."""
    times = ", ".join(f"{time:.2g} s at {speed}" for speed, time in seconds(size).items())
    return f"{size / MB:.3g} MB to download: {times}"


def warning(packager: str, options: Mapping[str, object], size: int) -> str:
    """What an app store says against a package of so many bytes; "" for nothing. The app's own bytes come on top."""
    smaller = "" if options.get("packed") else "; packed=true may make it smaller"
    if packager == "android" and options.get("ai_pack"):
        return f"Google Play takes at most {AI_PACK // MB:,} MB in an AI pack{smaller}" if size > AI_PACK else ""
    if packager == "android" and size > BASE_MODULE:
        return f"Google Play takes at most {BASE_MODULE // MB} MB in an app's base module; add ai_pack=true{smaller}"
    if packager == "ios" and size > IOS_APP:
        return f"the App Store takes apps of less than {IOS_APP // MB:,} MB, unpacked"
    if packager == "ios" and size > CELLULAR:
        return f"iPhones ask before they download more than {CELLULAR // MB} MB over a mobile network{smaller}"
    return ""
