"""`edgecompress cache`: ls, why, gc, verify."""

from __future__ import annotations

import argparse

from edgecompress.cli.arguments import Command, argument, asked
from edgecompress.core.errors import InputError

HELP = "inspect the store of results: ls, why, gc, verify"
PURPOSE = "compare results"
ORDER = 101
DESCRIPTION = "Looks into the store of results."


def ls(args: argparse.Namespace) -> int:
    """Lists what is stored."""
    from edgecompress.cli import console
    from edgecompress.commands import cache
    from edgecompress.core import plain_text

    rows = cache.stored(args.store)
    console.say(args, rows, plain_text.columns(rows, console.room()) or "nothing is stored")
    return 0


def why(args: argparse.Namespace) -> int:
    """Prints what the result of a stage depends on."""
    from edgecompress.cli import console
    from edgecompress.commands import cache

    rows = cache.reasons(args.store, args.stage)
    console.say(args, rows, cache.reasons_text(rows, console.room()))
    return 0


def gc(args: argparse.Namespace) -> int:
    """Removes old results."""
    from edgecompress.cli import console
    from edgecompress.commands import cache

    if not args.older_than >= 0:
        raise InputError(f"--older-than {args.older_than:g}: must be a number of days, at least 0")
    freed = cache.opened(args.store).collect(args.older_than * 86400)
    console.say(args, {"freed_bytes": freed}, f"{freed / 2**20:.1f} MiB freed")
    return 0


def verify(args: argparse.Namespace) -> int:
    """Compares every stored byte with its sha256; 1 on damage."""
    from edgecompress.cli import console
    from edgecompress.commands import cache

    store = cache.opened(args.store)
    damaged = [{"key": folder.name, "path": str(folder)} for folder in store.damaged()]
    words = [f"{d['path']}: damaged; the next deploy that needs it rebuilds it" for d in damaged]
    facts = {"checked": len(list((store.root / "store").iterdir())), "damaged": damaged}
    console.say(args, facts, "\n".join(words) or "every result is intact")
    return 1 if damaged else 0


STORE = asked("store")
COMMANDS = (
    Command("ls", "list the stored results, newest first", ls, "cache ls\ncache ls --json", (STORE,)),
    Command(
        "why",
        "say what the result of a stage depends on",
        why,
        "cache why int8/verify",
        (argument("stage", metavar="STAGE", help="name of a stage, as `plan` lists it"), STORE),
    ),
    Command(
        "gc",
        "remove old results",
        gc,
        "cache gc --older-than 30\ncache gc --older-than 0",
        (
            argument("--older-than", type=float, default=30.0, metavar="DAYS", help="age in days (default: 30)"),
            STORE,
        ),
    ),
    Command("verify", "compare every stored byte with its sha256; exit 1 on damage", verify, "cache verify", (STORE,)),
)
