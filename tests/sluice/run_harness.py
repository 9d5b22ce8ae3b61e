"""What the checks of `sluice run` stand on: children that are watched, made-up models, strace."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

NOBODY = 65534


class Skip(Exception):
    """This machine cannot show what the check is about; the text says why."""


class Result:
    def __init__(self, code, out, err, seconds, rusage, peak_rss_bytes):
        self.code, self.out, self.err = code, out, err
        self.seconds, self.rusage, self.peak_rss_bytes = seconds, rusage, peak_rss_bytes

    def notes(self):
        """Messages of the command: the summary has none of its own prefix."""
        return [line for line in self.err.splitlines() if line.startswith("sluice: ")]


def equal(got, want, what):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def contains(text, *parts):
    for part in parts:
        assert part in text, f"{part!r} is not in {text!r}"


def alive(child):
    """Whether a child still runs; unlike poll, leaves its exit status to be waited for."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def vm_hwm_bytes(pid):
    """Peak RSS as the kernel has it; wait4's counts what the parent had before exec, too."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    return int(found[1]) * 1024 if found else 0


class Bench:
    """The executable, a folder, and the models made there, each once."""

    def __init__(self, sluice):
        self.sluice = os.path.abspath(sluice)
        self.folder = Path(tempfile.mkdtemp(prefix="sluice-run-", dir=os.environ.get("TMPDIR")))
        self.folder = self.folder.resolve()
        self.folder.chmod(0o755)  # other users are sent here
        self.models = {}
        self.n_files = 0

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name):
        """A name in the folder that nothing has yet."""
        self.n_files += 1
        return self.folder / f"{self.n_files}-{name}"

    def model(self, name, *flags):
        if name not in self.models:
            folder = self.folder / name
            flags = flags or ("--geometry", name)
            equal(self.command([self.sluice, "synth", folder, *flags]).code, 0, f"synth {name}")
            self.models[name] = folder
        return self.models[name]

    def command(self, argv, timeout=60, during=None, watch_memory=False, **popen):
        """Runs to the end. `during(process)` is called once it is started."""
        out, err = self.path("out"), self.path("err")
        start = time.monotonic()
        with open(out, "wb") as out_file, open(err, "wb") as err_file:
            # Leaks cannot be looked for under ptrace; the tests of the rooms look for them.
            env = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") +
                   ":detect_leaks=0"}
            popen = {"env": env, "stdin": subprocess.DEVNULL, "stdout": out_file,
                     "stderr": err_file, **popen}
            child = subprocess.Popen([str(a) for a in argv], **popen)
            guard = threading.Timer(timeout, child.kill)
            guard.start()
            peak = 0
            try:
                if during:
                    during(child)
                while watch_memory:  # the peak never falls, so the last look has it
                    now = vm_hwm_bytes(child.pid)
                    if now == 0:
                        break
                    peak = max(peak, now)
                    time.sleep(0.0005)
                _, status, rusage = os.wait4(child.pid, 0)
                child.returncode = os.waitstatus_to_exitcode(status)
            finally:
                guard.cancel()
                if child.returncode is None:
                    child.kill()
                    child.wait()
        seconds = time.monotonic() - start
        assert seconds < timeout, f"no end after {timeout} s: {argv}"
        return Result(child.returncode, out.read_text(errors="replace"),
                      err.read_text(errors="replace"), seconds, rusage, peak)

    def run(self, model, *flags, prefix=(), code=0, **more):
        result = self.command([*prefix, self.sluice, "run", model, *flags], **more)
        assert result.code == code, f"exit code {result.code}, want {code}: {flags}: {result.err}"
        return result

    def logits(self, model, *flags, **more):
        """(result, bytes of the logits) of a run on ids."""
        dump = self.path("logits")
        result = self.run(model, *flags, "--print", "ids", "--dump-logits", dump, **more)
        data = dump.read_bytes()
        dump.unlink()
        return result, data

    def report(self, model, *flags, **more):
        """(result, parsed --json) of a run on ids."""
        file = self.path("json")
        result = self.run(model, *flags, "--print", "ids", "--json", file, **more)
        return result, json.loads(file.read_text())

    def strace(self, call, error, when="", path=None):
        """A prefix that lets `call` fail. Calls are counted for each thread by itself."""
        self.need("strace")
        if not hasattr(self, "strace_works"):
            self.strace_works = subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"],
                                               stderr=subprocess.DEVNULL).returncode == 0
        if not self.strace_works:
            raise Skip("strace may not trace here")
        inject = f"inject={call}:error={error}" + (f":when={when}" if when else "")
        prefix = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]
        return prefix + (["-P", str(path)] if path else [])

    def as_nobody(self):
        """A prefix that gives up root, or none for an ordinary user."""
        if os.getuid() != 0:
            return []
        self.need("setpriv")
        prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        # By a shell: what setpriv itself starts may still pass folders that only root may.
        starts = [*prefix, "sh", "-c", 'exec "$0" --version']
        if subprocess.run([*starts, self.sluice], capture_output=True).returncode:
            copy = self.folder / "sluice"  # where that user may read it
            shutil.copy(self.sluice, copy)
            self.sluice = str(copy)
        if subprocess.run([*starts, self.sluice], capture_output=True).returncode:
            raise Skip("the executable does not start as another user")
        return prefix

    @staticmethod
    def need(*programs):
        for program in programs:
            if shutil.which(program) is None:
                raise Skip(f"there is no {program}")

    def need_plain_memory(self):
        """Sanitizers map shadows and keep what was freed."""
        executable = Path(self.sluice).read_bytes()
        if b"__asan_init" in executable or b"__tsan_init" in executable:
            raise Skip("a sanitizer takes memory of its own")

    @staticmethod
    def need_uring():
        """io_uring may be switched off on the machine of the test."""
        try:
            value = Path("/proc/sys/kernel/io_uring_disabled").read_text().strip()
        except OSError:
            value = "0"
        if value == "2" or (value == "1" and os.getuid() != 0):
            raise Skip(f"kernel.io_uring_disabled is {value}")


class Loop:
    """An ext4 of 64 MiB on a loop device, mounted."""

    def __init__(self, bench, block_bytes=4096):
        if os.getuid() != 0:
            raise Skip("only root makes loop devices")
        bench.need("losetup", "mkfs.ext4", "mount", "umount")
        self.image, self.mount, self.device = bench.path("image"), bench.path("mount"), None
        self.block_bytes = block_bytes
        self.mount.mkdir()
        with open(self.image, "wb") as file:
            file.truncate(64 << 20)

    def __enter__(self):
        self.device = self.ask("losetup", "-b", self.block_bytes, "--find", "--show", self.image)
        try:
            self.ask("mkfs.ext4", "-q", "-b", "4096", self.device)
            self.ask("mount", self.device, self.mount)
        except Skip:
            self.ask("losetup", "-d", self.device)
            raise
        return self.mount

    def __exit__(self, *_):
        # The kernel takes a closed ring apart a little after its process has ended.
        for _ in range(100):
            if subprocess.run(["umount", self.mount], capture_output=True).returncode == 0:
                break
            time.sleep(0.05)
        subprocess.run(["losetup", "-d", self.device], check=False)

    @staticmethod
    def ask(*argv):
        done = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
        if done.returncode != 0:
            raise Skip(f"{argv[0]}: {done.stderr.strip()}")
        return done.stdout.strip()


CHECKS = []


def check(sentence):
    """Registers a check: a sentence that could be false, and the function that tries it."""

    def register(function):
        CHECKS.append((sentence, function))
        return function
    return register


def run_checks(sluice, only=""):
    bench = Bench(sluice)
    n_failed = 0
    try:
        for sentence, function in CHECKS:
            if only not in sentence:
                continue
            start = time.monotonic()
            try:
                function(bench)
                verdict = "ok  "
            except Skip as reason:
                verdict, sentence = "skip", f"{sentence}: {reason}"
            except Exception as problem:  # each check is on its own: report it and go on
                verdict, n_failed = "FAIL", n_failed + 1
                place = traceback.extract_tb(problem.__traceback__)
                line = [f.lineno for f in place if f.name == function.__name__][-1]
                sentence = f"{sentence}: line {line}: {str(problem) or type(problem).__name__}"
            print(f"{verdict} {time.monotonic() - start:5.2f} s  {sentence}", flush=True)
    finally:
        bench.close()
    return 1 if n_failed else 0


def main():
    return run_checks(sys.argv[1], *sys.argv[2:3])
