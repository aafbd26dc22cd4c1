"""Start a pilot, watch it by its log, end it, and find it again: the log is all that the two processes share."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from planner.catalogues import find_gpu
from planner.errors import PlannerError, UnknownName
from planner.files import write_whole
from planner.hardware import Gpu
from planner.job import Job
from planner.pilot.record import Measurement, measurement_of, read_events, write_measurement
from planner.pilot.request import Request, check_request
from planner.sharding import Sharding

__all__ = ["GRACE_S", "Run", "attached_gpu", "devices", "find_runs", "missing_packages", "start"]

_NEEDED = ("torch", "transformers", "peft", "bitsandbytes", "accelerate")
GRACE_S = 20.0  # between asking a pilot to end and ending it


def missing_packages() -> list[str]:
    """Packages that a pilot needs and that are not installed."""
    from importlib.util import find_spec

    return [name for name in _NEEDED if find_spec(name) is None]


def devices() -> list[str]:
    """Names of the cards that the driver shows; none where there is no driver or no NVML."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
        return [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
    except Exception:  # noqa: BLE001  no driver, no library, no permission: no card that could be used
        return []


def attached_gpu() -> Gpu | None:
    """The first attached card that the catalogue knows; None where there is none."""
    for name in devices():
        with contextlib.suppress(UnknownName):
            return find_gpu(name)
    return None


@dataclass
class Run:
    """One pilot in its folder: request.json, pid, log.jsonl, and measurement.json once it is over."""

    folder: Path
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    @property
    def job(self) -> Job:
        """What is run. Raises PlannerError where the request cannot be read."""
        try:
            return Job(**json.loads((self.folder / "request.json").read_text(encoding="utf-8"))["job"])
        except (OSError, ValueError, KeyError) as error:
            raise PlannerError("{folder!r} holds no pilot ({problem})", folder=str(self.folder), problem=str(error)) from error

    def events(self) -> list[dict[str, Any]]:
        """All that has been logged."""
        return read_events(self.folder / "log.jsonl")

    @property
    def running(self) -> bool:
        """Whether its process is alive."""
        if self.process is not None:
            return self.process.poll() is None
        return not any(event["event"] == "end" for event in self.events()[-1:]) and _is_worker(self._pid, self.folder)

    @property
    def finished(self) -> bool:
        """Whether its record has been written."""
        return (self.folder / "measurement.json").is_file()

    @property
    def _pid(self) -> int:
        """Of the process that was started, which leads its group; 0 where that is not known."""
        if self.process is not None:
            return self.process.pid
        try:
            return int((self.folder / "pid").read_text())
        except (OSError, ValueError):
            return 0

    def cancel(self, grace_s: float = GRACE_S) -> None:
        """Ask the pilot to end, and end it where it does not; its children too."""
        group = self._pid
        if not group or not self.running:
            return
        with contextlib.suppress(OSError):  # whoever reads the log later knows that it was not a crash
            (self.folder / "cancelled").touch()
        for signal_number, seconds in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal_number)
            until = time.monotonic() + seconds
            while self.running and time.monotonic() < until:
                time.sleep(0.05)

    def finish(self) -> Measurement:
        """Write what was measured, and why it ended. Raises PlannerError where the file cannot be written."""
        if self.process is not None:
            self.process.wait()
        found = measurement_of(self.job, self.events())
        if found.state == "died" and (self.folder / "cancelled").exists():
            found = found.model_copy(update={"state": "cancelled"})
        if found.state == "died" and not found.problem:
            problem = "the process ended without a word" if self.events() else _last_words(self.folder)
            found = found.model_copy(update={"problem": problem})
        write_measurement(self.folder / "measurement.json", found)
        return found


def start(job: Job, runs: Path, *, device: Literal["cuda", "cpu"], sharding: Sharding | None = None, **options: Any) -> Run:
    """Start the worker in a process of its own, which outlives this one; `options` are fields of Request.

    With `sharding` a process for each GPU is started as `accelerate launch` does it, by torchrun. Raises PlannerError where it cannot be started.
    """
    if missing := missing_packages():
        raise PlannerError("a pilot needs {packages}: pip install 'finetune-planner[pilot]'", packages=", ".join(missing))
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{job.architecture.name.rsplit('/', 1)[-1]}"
    folder = runs.resolve() / "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in name)
    shared = asdict(sharding) if sharding else None
    request = Request(job=job.model_dump(mode="json"), device=device, log=str(folder / "log.jsonl"), sharding=shared, **options)
    check_request(job, request)
    if device == "cuda" and sharding and sharding.num_gpus > (attached := len(devices())):
        raise PlannerError(
            "this pilot takes {num_gpus} GPUs, and {attached} are attached", num_gpus=sharding.num_gpus, attached=attached
        )
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(sharding.num_gpus), "-m"] if sharding else []
    try:
        folder.mkdir(parents=True)
        write_whole(folder / "request.json", request.model_dump_json().encode())
        package = str(Path(__file__).parents[2])
        cpu = {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"} if device == "cpu" and sharding else {}
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        with open(folder / "output.txt", "wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", *launcher, "planner.pilot.worker", str(folder / "request.json")],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                env={**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false", **cpu},
            )  # fmt: skip
        with contextlib.suppress(PlannerError):  # this kernel has it anyway; another one finds it before anything is logged
            write_whole(folder / "pid", str(process.pid).encode())
    except OSError as error:
        raise PlannerError(
            "the pilot cannot be started in {folder!r} ({problem})", folder=str(folder), problem=str(error)
        ) from error
    return Run(folder, process)


def find_runs(runs: Path) -> list[Run]:
    """Pilots in a folder of runs, the newest first; those that are still running can be watched and cancelled."""
    if not runs.is_dir():
        return []
    return [Run(folder) for folder in sorted(runs.iterdir(), reverse=True) if (folder / "request.json").is_file()]


def _is_worker(pid: int, folder: Path) -> bool:
    """Whether a process number still belongs to this pilot, and not to a later process."""
    if not pid:
        return False
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return str(folder).encode() in command and state != "Z"
    except OSError:
        if Path("/proc/self").exists():
            return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _last_words(folder: Path) -> str:
    """The last line that the process printed: why it did not even begin."""
    with contextlib.suppress(OSError):
        lines = (folder / "output.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][:400] if lines else "the process ended without a word"
    return "the process ended without a word"
