"""A dry run in its own process: what crosses, how it is stopped, and one sentence for whatever the other side does."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from planner.catalogues import find_model
from planner.dryrun import DryRun, process
from planner.dryrun.process import dry_run_in_process
from planner.dryrun.summary import DryRunSummary, summarised
from planner.dryrun.turns import WAITING, turn
from planner.errors import PlannerError
from planner.hardware import Gpu
from planner.job import Job

JOB = Job(architecture=find_model("HuggingFaceTB/SmolLM2-135M"))
COMMAND = (sys.executable, "-m", "planner.dryrun.process")


def child(code: str) -> tuple[str, str, str]:
    """A stand-in for the process: Python code with the usual modules."""
    return sys.executable, "-c", f"import json, os, subprocess, sys, time\nrequest = json.loads(input())\n{code}"


def run(code: str, gpu: Gpu) -> tuple[DryRunSummary, list[str]]:
    texts: list[str] = []
    return asyncio.run(dry_run_in_process(JOB, gpu, texts.append, command=child(code))), texts


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        os.kill(pid, 0)
        return True
    return False


# ---- what crosses ------------------------------------------------------------------------------------------------------


def test_the_summary_holds_the_peak_and_adds_up(small_dry_run: DryRun, small_summary: DryRunSummary) -> None:
    timeline = small_summary.timeline
    assert small_summary.peak == small_dry_run.peak
    assert small_summary.peak.instant == "loss"
    assert max(timeline.allocated) == small_dry_run.peak.allocated
    assert [sum(sizes) for sizes in zip(*timeline.components.values(), strict=True)] == timeline.allocated
    assert [name for name, _, _ in timeline.phases] == ["load", "forward", "backward", "optimizer"]
    assert timeline.phases[-1][2] == len(timeline.allocated) == len(timeline.reserved)
    assert small_summary.verdict == "fits"


def test_a_card_that_is_too_small_says_who_asked_for_how_much(small_dry_run: DryRun, t4: Gpu) -> None:
    small = t4.model_copy(update={"memory_bytes": 8 * 2**30})
    found = summarised(small_dry_run, small, seconds=0)
    assert found.verdict == "does not fit"
    assert found.ran_out
    assert (found.ran_out.step, found.ran_out.phase, found.ran_out.requested_bytes) == ("step 1", "backward", 2 * 2**30)
    assert found.ran_out.asked_by == "lm_head: _log_softmax_backward_data"


def test_the_result_and_the_progress_cross(small_summary: DryRunSummary, rtx_4090: Gpu) -> None:
    answer = json.dumps({"result": json.loads(small_summary.model_dump_json())})
    code = f"print(json.dumps({{'progress': request['gpu']}}), flush=True); print({answer!r})"
    found, texts = run(code, rtx_4090)
    assert found == small_summary
    assert texts == ["rtx-4090-24"]


def test_the_process_sees_no_card_and_no_network(rtx_4090: Gpu) -> None:
    code = "print(json.dumps({'error': {'template': repr([os.environ[n] for n in ('CUDA_VISIBLE_DEVICES', 'HF_HUB_OFFLINE')])}}))"
    with pytest.raises(PlannerError) as told:
        run(code, rtx_4090)
    assert str(told.value) == "['', '1']"


def test_an_error_crosses_so_that_it_can_be_translated(rtx_4090: Gpu) -> None:
    error = {"template": "the dry run failed ({problem})", "values": {"problem": "x"}}
    with pytest.raises(PlannerError) as told:
        run(f"print(json.dumps({{'error': {error!r}}}))", rtx_4090)
    assert told.value.text("tr") == "kuru çalıştırma başarısız oldu (x)"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("sys.exit(3)", "exit status 3"),
        ("os.kill(os.getpid(), 9)", "exit status -9"),
        ("print('Traceback'); time.sleep(60)", "cannot be read"),
        ("print('{}' * 10); time.sleep(60)", "cannot be read"),
        ("print(json.dumps({'result': {'verdict': 'fits'}})); time.sleep(60)", "cannot be read"),
        ("print('[' * 100000); time.sleep(60)", "cannot be read"),
        ("os.write(1, b'x' * 2**22); time.sleep(60)", "cannot be read"),
        ("os.write(1, bytes(range(255)) + b'\\n'); time.sleep(60)", "cannot be read"),
    ],
)
def test_a_process_that_dies_or_prints_rubbish_is_one_sentence(code: str, said: str, rtx_4090: Gpu) -> None:
    begun = time.monotonic()
    with pytest.raises(PlannerError, match=said):
        run(f"sys.stdout.reconfigure(line_buffering=True); {code}", rtx_4090)
    assert time.monotonic() - begun < 20


def test_one_that_cannot_start_is_one_sentence(rtx_4090: Gpu) -> None:
    with pytest.raises(PlannerError, match="cannot be started"):
        asyncio.run(dry_run_in_process(JOB, rtx_4090, command=("/no/such/python",)))


# ---- stopping ----------------------------------------------------------------------------------------------------------

SLEEPER = """
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(json.dumps({"progress": f"{os.getpid()} {helper.pid}"}), flush=True)
time.sleep(60)
"""


def test_cancelling_ends_the_process_and_what_it_started(rtx_4090: Gpu) -> None:
    pids: list[int] = []

    async def cancelled() -> None:
        started = asyncio.Event()

        def progress(text: str) -> None:
            pids.extend(map(int, text.split()))
            started.set()

        task = asyncio.create_task(dry_run_in_process(JOB, rtx_4090, progress, command=child(SLEEPER)))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    own, helper = pids
    assert not is_alive(own), "a zombie counts as alive"
    for _ in range(50):  # init takes the helper's corpse away
        if (
            not is_alive(helper)
            or "Z" in subprocess.run(["ps", "-o", "stat=", str(helper)], capture_output=True, text=True).stdout
        ):
            break
        time.sleep(0.1)
    else:
        pytest.fail("the helper lives on")


def test_one_that_takes_too_long_is_stopped(rtx_4090: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_MOST_SECONDS", 0.5)
    with pytest.raises(PlannerError, match="more than"):
        run(SLEEPER, rtx_4090)


# ---- the process itself ------------------------------------------------------------------------------------------------


def answer(line: str) -> dict[str, object]:
    """The first event of the real process for one line of input."""
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as real:
        assert real.stdin and real.stdout
        real.stdin.write(line + "\n")
        real.stdin.flush()
        return dict(json.loads(real.stdout.readline()))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rubbish", "JSONDecodeError"),
        (json.dumps({"job": {"architecture": 3}, "gpu": "t4"}), "architecture is 3"),
        (json.dumps({"job": JOB.model_dump(mode="json"), "gpu": "t44"}), "no GPU named"),
    ],
)
def test_hostile_input_is_one_error(line: str, said: str) -> None:
    error = answer(line)["error"]
    assert isinstance(error, dict)
    assert said in PlannerError(error["template"], **error["values"]).text("en")


def test_it_ends_when_its_input_is_closed() -> None:
    request = json.dumps({"job": JOB.model_dump(mode="json"), "gpu": "t4"})
    done = subprocess.run(COMMAND, input=request + "\n", capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert '"result":{' not in done.stdout


@pytest.mark.slow
def test_a_real_one_is_small_and_leaves_no_torch_here(rtx_4090: Gpu) -> None:
    pytest.importorskip("torch")
    before = "torch" in sys.modules
    texts: list[str] = []
    found = asyncio.run(dry_run_in_process(JOB, rtx_4090, texts.append))
    assert len(found.model_dump_json()) < 300_000
    assert len(found.timeline.allocated) <= 1000
    assert found.verdict == "fits"
    assert texts[0] == process.LOADING and len(texts) > 3
    assert before or "torch" not in sys.modules


# ---- turns -------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="no turns are kept there")
def test_a_third_dry_run_waits_until_one_of_two_has_ended(tmp_path: Path) -> None:
    told: list[str] = []
    at_once: list[int] = []

    async def one(running: set[int], number: int) -> None:
        async with turn(told.append, tmp_path):
            running.add(number)
            at_once.append(len(running))
            await asyncio.sleep(0.05)
            running.discard(number)

    async def five() -> None:
        running: set[int] = set()
        await asyncio.gather(*(one(running, number) for number in range(5)))

    asyncio.run(five())
    assert max(at_once) == 2
    assert len(at_once) == 5
    assert told == [WAITING] * 3


@pytest.mark.skipif(sys.platform == "win32", reason="no turns are kept there")
def test_a_turn_is_free_again_when_its_holder_is_killed(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys, time; from pathlib import Path; from planner.dryrun.turns import turn\n"
        "async def hold():\n"
        "    async with turn(print, Path(sys.argv[1])): print('held', flush=True); time.sleep(60)\n"
        "asyncio.run(hold())"
    )
    holders = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told: list[str] = []

    async def wait() -> None:
        async with turn(told.append, tmp_path):
            pass

    async def third() -> None:
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.2)
        assert told == [WAITING]
        assert not waiting.done()
        holders[0].kill()
        await waiting

    try:
        assert [holder.stdout.readline() for holder in holders if holder.stdout] == ["held\n"] * 2
        asyncio.run(third())
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()


def test_without_a_place_for_turns_nothing_waits(tmp_path: Path) -> None:
    async def go() -> None:
        async with turn(pytest.fail, tmp_path / "missing"):
            pass

    asyncio.run(go())
