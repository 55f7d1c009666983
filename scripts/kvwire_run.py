"""Runs `kvwire pair` for the benchmark scripts and reads its result file."""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Failed(Exception):
    """A sentence for the person who runs the benchmark."""


def target_folder():
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def plain_environment():
    """The caller's environment without UCX_ and KVWIRE_ settings, which would bend one side of a comparison unseen.

    Which NIXL to use is the one choice that stays.
    """
    return {
        key: value
        for key, value in os.environ.items()
        if key == "KVWIRE_NIXL_LIB" or not key.startswith(("UCX_", "KVWIRE_"))
    }


def end(process):
    """Ends one process that a script started, by its id, and waits for it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def last_line(path):
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "(it said nothing)"


def pair_case(binary, flags, environment, timeout, scratch):
    """The one case of a `kvwire pair` run, as its result file has it.

    The exit code is not judged: a run on one host may end with less than `trusted`. The case's own figures count.
    """
    output, log = scratch / "kvwire.json", scratch / "kvwire.log"
    output.unlink(missing_ok=True)
    argv = [binary, "pair", "--quiet", "--output", output, *flags]
    with log.open("wb") as out:
        run = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        run.wait(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Failed(f"kvwire did not finish within {timeout} s: {last_line(log)}") from None
    finally:
        end(run)
    try:
        (case,) = json.loads(output.read_text())["cases"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failed(f"kvwire ended with {run.returncode} and left no usable result ({error!r}): {last_line(log)}") from None
    return case
