"""The command line: arguments in, exit code and text out. What happens is in `api`, what it looks like in `console`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from edgecompress import actions
from edgecompress.errors import EdgeError

Command = Callable[[argparse.Namespace], int]
INTERRUPTED = 130
BUG = (
    "edgecompress: this is a bug: please report the text above with the output of `edgecompress doctor` to the project"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. Exit codes: 0 done, 1 a check failed, 2 your input, 3 a stage broke, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    args = parser().parse_args(words)
    args.words, args.began = words, time.monotonic()
    if getattr(args, "offline", False):
        os.environ["EDGECOMPRESS_OFFLINE"] = "1"  # nor is anything fetched before the first stage
    try:
        code = int(args.command(args))
        sys.stdout.flush()  # a closed pipe is met here, not at exit
        return code
    except EdgeError as error:
        print(f"edgecompress: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("edgecompress: interrupted; run it again and it goes on where it was", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe went away: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit would raise again
        return EdgeError.exit_code
    except Exception:  # the boundary: what is not an EdgeError is a fault of ours
        import traceback

        traceback.print_exc()
        print(BUG, file=sys.stderr)
        return EdgeError.exit_code


# --------------------------------------------------------------------------- the grammar


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help with its examples as they are written, and room for the longest option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)


class _Commands(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Commands of which one may have two words, though the first alone is one as well: `package verify`."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        both = " ".join(values[:2])
        super().__call__(parser, namespace, [both, *values[2:]] if both in self.choices else values, option_string)


def parser() -> argparse.ArgumentParser:
    """The whole grammar; the docs and the shell completion are made from it."""
    root = argparse.ArgumentParser(
        prog="edgecompress",
        description="Takes a trained model to an edge device: compressed, verified, measured where it will run.",
        epilog="examples:\n"
        "  edgecompress deploy                                   the embedded demo on this machine\n"
        "  edgecompress deploy net.onnx --data images/ --target x86\n"
        "  edgecompress deploy my_pkg.nets:build --data my_pkg.nets:data\n"
        "  edgecompress COMMAND --help                           what a command takes, with examples",
        formatter_class=_Help,
    )
    root.add_argument("--version", action="version", version=_version())
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True, action=_Commands)
    for add in (
        _add_run_commands,
        _add_analyze,
        _add_diagnose,
        _add_artifact_commands,
        _add_comparing,
        _add_history,
        _add_lists,
        _add_cache,
        _add_energy,
        _add_device,
        _add_others,
    ):
        add(commands)
    return root


def _version() -> str:
    from edgecompress import __version__

    return f"edgecompress {__version__}"


def _command(commands: Any, name: str, command: Command, says: str, examples: str) -> argparse.ArgumentParser:
    """One subcommand with its examples; `--json` and the verbosity are everywhere."""
    added: argparse.ArgumentParser = commands.add_parser(
        name,
        help=says,
        description=says[0].upper() + says[1:] + ".",
        epilog="examples:\n" + "\n".join(f"  edgecompress {line}" for line in examples.splitlines()),
        formatter_class=_Help,
    )
    added.set_defaults(command=command)
    added.add_argument("--json", action="store_true", help="print JSON on stdout; progress goes to stderr")
    added.add_argument("-v", "--verbose", action="count", default=0, help="say more: every setting and its origin")
    added.add_argument("-q", "--quiet", action="store_true", help="say only how it ended")
    return added


def _add_guard(commands: Any) -> argparse.ArgumentParser:
    guard = _command(
        commands,
        "guard",
        actions.guard,
        "deploy, and mend each variant that loses more than the budget, rung by rung",
        "guard my_pkg.nets:build --data my_pkg.nets:data --budget items_lost=1\n"
        "guard source.toml --target x86 --only int8,fp32 --budget metric_ratio=1.01\n"
        'guard source.toml --only int8,fp32 --set \'guard.rungs=["calibrate", "keep"]\'',
    )
    guard.add_argument(
        "--budget", action="append", default=[], metavar="LIMIT=VALUE", help="as --set limits.LIMIT=VALUE; may repeat"
    )
    return guard


def _add_run_commands(commands: Any) -> None:
    deploy = _command(
        commands,
        "deploy",
        actions.deploy,
        "compress, export, verify, measure and ship a model for a target",
        "deploy --target x86\n"
        "deploy --target arm64,android,ios\n"
        "deploy my_pkg.nets:build --data my_pkg.nets:data --profile quick\n"
        "deploy net.onnx --data images/ --metric top1 --only int8,fp32\n"
        "deploy source.toml --set variant.int8.calibrator=entropy --set limits.items_lost=2",
    )
    guard = _add_guard(commands)
    plan = _command(
        commands,
        "plan",
        actions.plan,
        "print what deploy would do, and how long it would take, without doing it",
        "plan --target x86\nplan net.onnx --data images/ --json",
    )
    for command in (deploy, guard, plan):
        command.add_argument("model", nargs="?", metavar="MODEL", help=MODEL_HELP)
        _add_job(command)
        command.add_argument(
            "--target", default="x86", help="a target's name or TOML file, or several with commas (default: x86)"
        )
        command.add_argument("--only", action="append", default=[], metavar="VARIANT", help="only these variants")
    for command in (deploy, guard):
        command.add_argument(
            "--out", type=Path, help="where it ships (default: dist/TARGET; of several targets: OUT/TARGET each)"
        )
        command.add_argument("--until", default="", metavar="STAGE", help="stop after this stage; plan lists them")
        command.add_argument(
            "--untrusted", action="store_true", help="refuse a model or data that runs its author's code"
        )
        _add_running(command)
        _add_require_measured(command)


def _add_analyze(commands: Any) -> None:
    analyze = _command(
        commands,
        "analyze",
        actions.analyze,
        "count what each layer of a model costs, which weights are zero, and which layers mind compression",
        "analyze\n"
        "analyze net.onnx --device rpi5,h200 --json\n"
        "analyze my_pkg.nets:build --data my_pkg.nets:data --sensitivity ratio --html analysis.html\n"
        "analyze --sensitivity bits --layers 'blocks.*,head' --levels 8,4,2 --items 100\n"
        "analyze dist/x86/model.onnx --storage",
    )
    analyze.add_argument("model", nargs="?", metavar="MODEL", help=MODEL_HELP)
    analyze.add_argument("--data", help="as for deploy; an .onnx or a .tflite needs it for --sensitivity only")
    analyze.add_argument("--metric", help="top1, top5, perplexity, mse, none, or pkg.mod:fn")
    analyze.add_argument("--samples", type=int, metavar="N", help="at most N items per split")
    analyze.add_argument(
        "--device", default="host", help="whose memory-bound layers: a name or TOML file, or several with commas"
    )
    analyze.add_argument("--batch", type=int, metavar="N", help="items of an inference (default: 1)")
    analyze.add_argument("--threads", type=int, metavar="N", help="threads of the sensitivity (default: 1)")
    analyze.add_argument("--seed", type=int, metavar="N", help="of how the data is split (default: 0)")
    analyze.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="lay a value over the source's"
    )
    analyze.add_argument(
        "--storage", action="store_true", help="what each weight takes: as it is, as a bitmask, in CSR, through zstd"
    )
    _add_sensitivity(analyze)
    analyze.add_argument("--html", type=Path, metavar="FILE", help="write it as a page, too, with the picture")
    analyze.add_argument("--offline", action="store_true", help=OFFLINE_HELP)
    _add_store(analyze)


def _add_diagnose(commands: Any) -> None:
    diagnose = _command(
        commands,
        "diagnose",
        actions.diagnose,
        "find the layer at which an artifact leaves its source, and say what to do about it",
        "diagnose --target x86 --variant int8\n"
        "diagnose my_pkg.nets:build --data my_pkg.nets:data --target ios --variant fp16 --out why\n"
        "diagnose --artifact dist/x86\n"
        "diagnose my_pkg.nets:build --data my_pkg.nets:data --artifact theirs.tflite --json",
    )
    diagnose.add_argument("model", nargs="?", metavar="MODEL", help=MODEL_HELP)
    diagnose.add_argument("--target", help="whose variant: a target's name or TOML file (default: x86)")
    diagnose.add_argument("--variant", default="", help="which of its variants (default: the first that compresses)")
    diagnose.add_argument(
        "--artifact", type=Path, metavar="PATH", help="what a deploy wrote, or a model file, instead of a variant"
    )
    diagnose.add_argument("--data", help="as for deploy")
    diagnose.add_argument("--samples", type=int, metavar="N", help="at most N items per split")
    diagnose.add_argument("--items", type=int, default=16, metavar="N", help="run the first N items (default: 16)")
    diagnose.add_argument("--split", choices=("calibrate", "select", "test"), default="calibrate", help="of this split")
    for name, says in (("threads", "threads of an inference"), ("batch", "items of an inference")):
        diagnose.add_argument(f"--{name}", type=int, metavar="N", help=f"{says} (default: 1)")
    diagnose.add_argument("--seed", type=int, metavar="N", help="of everything random (default: 0)")
    diagnose.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="lay a value over a TOML file's"
    )
    diagnose.add_argument("--out", type=Path, metavar="DIR", help="write diagnosis.json and its page there, too")
    diagnose.add_argument("--offline", action="store_true", help=OFFLINE_HELP)
    _add_store(diagnose)


def _add_sensitivity(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--sensitivity", choices=("ratio", "bits"), help="prune, or quantize, one layer after the other and look"
    )
    command.add_argument(
        "--structure",
        choices=("element", "filter", "channel"),
        default="element",
        help="what a ratio prunes the smallest of (default: element)",
    )
    command.add_argument(
        "--layers", default="", metavar="NAMES", help="only these, as patterns with commas (default: all)"
    )
    command.add_argument(
        "--levels", default="", metavar="LEVELS", help="with commas (default: 0.25,0.5,0.75, or 8,4,3,2 bits)"
    )
    command.add_argument("--items", type=int, default=64, metavar="N", help="of the split `select` (default: 64)")


OFFLINE_HELP = "refuse whatever tries to reach the network, but for a device that is asked for"
MODEL_HELP = (
    "a factory pkg.mod:fn, a .pt2, .onnx, .tflite or .keras file, a SavedModel, or a source TOML "
    "(default: the embedded demo)"
)


def _add_job(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", help="pkg.mod:fn, an .npz, a folder of .npy or of images, or `random`")
    command.add_argument("--metric", help="top1, top5, perplexity, mse, none, or pkg.mod:fn")
    command.add_argument("--samples", type=int, metavar="N", help="at most N items per split")
    _add_measuring(command)


def _add_measuring(command: argparse.ArgumentParser) -> None:
    command.add_argument("--device", help="a device's name or TOML file (default: the target's)")
    command.add_argument(
        "--profile", default="standard", help="how to measure: quick, standard, strict, or a TOML file"
    )
    command.add_argument("--threads", type=int, metavar="N", help="threads of an inference (default: 1)")
    command.add_argument("--batch", type=int, metavar="N", help="items of an inference (default: 1)")
    command.add_argument("--seed", type=int, metavar="N", help="of everything random (default: 0)")
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="lay a value over a TOML file's"
    )


def _add_running(command: argparse.ArgumentParser) -> None:
    command.add_argument("--offline", action="store_true", help=OFFLINE_HELP)
    command.add_argument("--remeasure", action="store_true", help="measure again, whatever is stored")
    _add_store(command)


def _add_require_measured(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--require-measured", action="store_true", help="fail (exit 1) when no sensor measured the energy"
    )


def _add_store(command: argparse.ArgumentParser) -> None:
    command.add_argument("--store", type=Path, default=Path(".edgecompress"), help="where results are kept")


def _add_artifact_commands(commands: Any) -> None:
    verify = _command(
        commands,
        "verify",
        actions.verify,
        "check a shipped artifact against its source again",
        "verify dist/x86\nverify dist/x86 my_pkg.nets:build --data my_pkg.nets:data",
    )
    verify.add_argument("artifact", type=Path, metavar="FOLDER", help="what a deploy wrote")
    verify.add_argument("model", nargs="?", metavar="MODEL", help="the source (default: the one in its report)")
    verify.add_argument("--target", help="whose limits count (default: the one it was deployed for)")
    _add_job(verify)
    _add_running(verify)
    profile = _command(
        commands,
        "profile",
        actions.profile,
        "measure a shipped artifact on a device",
        "profile dist/x86 --profile quick\nprofile dist/x86 --threads 2 --batch 8 --json",
    )
    profile.add_argument("artifact", type=Path, metavar="FOLDER", help="what a deploy wrote")
    _add_measuring(profile)
    _add_running(profile)
    _add_require_measured(profile)
    _add_report(commands)
    _add_package(commands)


def _add_package(commands: Any) -> None:
    package = _command(
        commands,
        "package",
        actions.package,
        "wrap a shipped artifact for an app",
        "package dist/x86\n"
        "package dist/android --set version=1.2.0 --sign minisign.key\n"
        "package dist/arm64 --as tar --out digits.tar.gz",
    )
    package.add_argument("artifact", type=Path, metavar="FOLDER", help="what a deploy wrote")
    package.add_argument("--as", dest="packager", metavar="PACKAGER", default="", help="default: the target's")
    package.add_argument("--out", type=Path, help="the file it writes (default: beside FOLDER)")
    package.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="name, version, or an option of the packager; may repeat",
    )
    package.add_argument(
        "--sign", type=Path, metavar="SECRET_KEY_FILE", help="of minisign: writes the signature beside the package"
    )
    checked = _command(
        commands,
        "package verify",
        actions.package_verify,
        "check a package: its structure, hashes and signature, and its model against its golden item",
        "package verify digits-tar.tar.gz\npackage verify digits-android.zip --key minisign.pub --json",
    )
    checked.add_argument("package", type=Path, metavar="FILE", help="what package wrote, or was sent to you")
    checked.add_argument("--key", metavar="PUBLIC_KEY", help="of minisign: a file, or the key itself")


def _add_report(commands: Any) -> None:
    report = _command(
        commands,
        "report",
        actions.report,
        "show the report of a deploy, and add what packages measured on other devices",
        "report dist/x86\nreport dist/x86 --json\nreport dist/android --add pixel8.json pixel8-again.json",
    )
    report.add_argument("artifact", type=Path, metavar="FOLDER", help="what a deploy wrote")
    report.add_argument(
        "--add",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="the JSON of a package's benchmark: kept in FOLDER/measured, and shown from then on",
    )
    _add_store(report)


def _add_comparing(commands: Any) -> None:
    compare = _command(
        commands,
        "compare",
        actions.compare,
        "hold reports against the first one: ratios with their intervals, gates for CI",
        "compare before/report.json dist/x86\n"
        "compare dist/x86@fp32 dist/x86 --json\n"
        'compare before dist/x86 --fail-if "latency_ms > 1.05x" --fail-if "accuracy_drop > 0.01"\n'
        "compare before dist/x86 --remeasure --profile strict\n"
        "compare dist/x86 dist/arm64 --html comparison.html",
    )
    compare.add_argument(
        "reports", nargs="+", metavar="REPORT", help="a report.json or its folder, of a variant as REPORT@VARIANT"
    )
    compare.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="GATE",
        help='exit 1 when an interval shows it: "latency_ms > 1.05x" of the first, or "size_bytes > 500000"',
    )
    _add_measuring(compare)
    compare.add_argument(
        "--remeasure", action="store_true", help="measure the artifacts of the folders again, in turns"
    )
    compare.add_argument(
        "--html", type=Path, metavar="FILE", help="write it as a page, too, with the fronts of all their variants"
    )
    _add_store(compare)


def _add_history(commands: Any) -> None:
    history = _command(
        commands,
        "history",
        actions.history,
        "list every result, with its change from the one before of its kind",
        "history\nhistory --source net.onnx --target x86 --limit 5\nhistory --json",
    )
    history.add_argument("--source", default="", help="only of this model (a part of its name will do)")
    history.add_argument("--target", default="", help="only of this target")
    history.add_argument("--limit", type=int, default=20, metavar="N", help="the newest N (default: 20)")
    _add_store(history)


def _add_lists(commands: Any) -> None:
    singular = {
        "targets": "what can be shipped",
        "devices": "where it can be measured",
        "profiles": "how it can be measured",
        "techniques": "ways to compress",
        "runtimes": "inference engines",
        "sensors": "ways to read energy",
        "passes": "more ways to look at what is measured",
        "transports": "ways to reach a device",
    }
    for kind, says in singular.items():
        examples = {"targets": "x86", "devices": "host", "profiles": "quick"}.get(kind, "")
        lines = f"{kind}\n{kind} --json" + (f"\n{kind} {examples}" if examples else "")
        listed = _command(commands, kind, actions.list_all, f"list {kind}: {says}", lines)
        listed.add_argument("name", nargs="?", metavar="NAME", help="show this one whole")
        listed.set_defaults(kind=kind)


def _add_cache(commands: Any) -> None:
    cache = commands.add_parser(
        "cache",
        help="look into the store of results: ls, why, gc, verify",
        description="Looks into the store of results.",
    )
    inside = cache.add_subparsers(title="commands", metavar="COMMAND", required=True)
    ls = _command(inside, "ls", actions.cache_ls, "list the stored results, newest first", "cache ls\ncache ls --json")
    why = _command(
        inside, "why", actions.cache_why, "say what the result of a stage depends on", "cache why int8/verify"
    )
    why.add_argument("stage", metavar="STAGE", help="a stage's name, as plan lists it")
    gc = _command(
        inside, "gc", actions.cache_gc, "remove old results", "cache gc --older-than 30\ncache gc --older-than 0"
    )
    gc.add_argument("--older-than", type=float, default=30.0, metavar="DAYS", help="older than this (default: 30)")
    check = _command(
        inside,
        "verify",
        actions.cache_verify,
        "compare every stored byte with its sha256; exit 1 on damage",
        "cache verify",
    )
    for command in (ls, why, gc, check):
        _add_store(command)


def _add_energy(commands: Any) -> None:
    energy = commands.add_parser(
        "energy",
        help="energy where no sensor is: calibrate",
        description="Learns energy on a device that has a sensor, for the devices of its class that have none.",
    )
    inside = energy.add_subparsers(title="commands", metavar="COMMAND", required=True)
    calibrate = _command(
        inside,
        "calibrate",
        actions.energy_calibrate,
        "measure what a second, a MAC and a byte take, on a device that has a sensor",
        "energy calibrate --device rpi5\nenergy calibrate --device rpi5 --profile energy --out calibrations/rpi5.toml",
    )
    calibrate.add_argument("--device", required=True, help="a device's name or TOML file")
    calibrate.add_argument(
        "--profile", default="quick", help="how to measure each of the 30 nets (default: quick, 12 minutes in all)"
    )
    calibrate.add_argument("--threads", type=int, default=1, metavar="N", help="threads of an inference (default: 1)")
    calibrate.add_argument("--out", type=Path, help="the file it writes (default: DEVICE-energy.toml)")


def _add_device(commands: Any) -> None:
    device = commands.add_parser(
        "device",
        help="get a device: add a board, build an emulated one; learn how wide its kernels are",
        description="Gets a device to measure on, and learns what its kernels are like.",
    )
    inside = device.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add = _command(
        inside,
        "add",
        actions.device_add,
        "probe a board and write its device file",
        "device add --ssh user@board\ndevice add --ssh user@10.0.0.7 --name lab-board --set port=2222",
    )
    add.add_argument(
        "--ssh", required=True, metavar="USER@BOARD", help="where it is; an alias of ~/.ssh/config will do"
    )
    add.add_argument("--name", default="", help="what it is called (default: by the name of its host)")
    add.add_argument("--output", type=Path, help="the file (default: devices/NAME.toml)")
    add.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="an option of the transport: port, user, python"
    )
    build = _command(
        inside,
        "build",
        actions.device_build,
        "make an emulated device from the distribution's packages, without root",
        "device build qemu-arm64",
    )
    build.add_argument("name", choices=("qemu-arm64",), help="what is built; its devices are qemu-cortex-...")
    _add_blocks(inside)


def _add_blocks(commands: Any) -> None:
    blocks = _command(
        commands,
        "blocks",
        actions.device_blocks,
        "find how many channels a device's kernels compute at once, and write it into its file",
        "device blocks\ndevice blocks rpi5 --runtime onnx --precision fp32 --json",
    )
    blocks.add_argument("device", nargs="?", default="host", metavar="DEVICE", help="its name or TOML file")
    blocks.add_argument("--runtime", default="litert", help="whose kernels (default: litert)")
    blocks.add_argument("--precision", default="int8", help="in which precision, or fp32 (default: int8)")
    blocks.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="lay a value over the device's: options.port"
    )
    _add_running(blocks)


def _add_others(commands: Any) -> None:
    doctor = _command(
        commands,
        "doctor",
        actions.doctor,
        "say what this machine can do; paste it into a bug report",
        "doctor\ndoctor --json",
    )
    doctor.add_argument("--device", default="host", help="ask this device (default: host)")
    init = _command(
        commands,
        "init",
        actions.init,
        "write a commented TOML file for a case of your own",
        "init my-board --runtime openvino --runtime onnx\n"
        "init my-net --kind source --model my_pkg.nets:build --data my_pkg.nets:data\n"
        "init my-board --kind device --output devices/my-board.toml",
    )
    init.add_argument("name", metavar="NAME", help="its name")
    init.add_argument("--kind", choices=("target", "source", "device", "profile"), default="target", help="of what")
    init.add_argument("--runtime", action="append", default=[], help="of a target's variants; may be repeated")
    init.add_argument("--model", default="my_package.nets:build", help="of a source")
    init.add_argument("--data", default="my_package.nets:data", help="of a source")
    init.add_argument("--output", type=Path, help="the file (default: KINDs/NAME.toml)")
    completion = commands.add_parser(
        "completion",
        help="print a shell's completion script",
        description="Prints a completion script.",
        epilog="examples:\n  edgecompress completion bash > ~/.local/share/bash-completion/completions/edgecompress",
        formatter_class=_Help,
    )
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    completion.set_defaults(command=_completion)


def _completion(args: argparse.Namespace) -> int:
    import shtab

    root = parser()
    for action in _actions(root):
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab's own mark
    print(shtab.complete(root, args.shell))
    return 0


def _actions(below: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in below._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _actions(child)


if __name__ == "__main__":
    sys.exit(main())
