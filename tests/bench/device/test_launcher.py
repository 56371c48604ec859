"""The fork server: how jobs end, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.device.launcher import Event, Finished, Job, Launcher, Progress
from tests.bench.device.support import DEVICE_JOBS, LAUNCHER_JOBS

DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def light() -> Iterator[Launcher]:
    """A launcher for jobs that need no device: its server imports nothing."""
    with Launcher("cpu", modules=()) as started:
        yield started


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def next_progress(launcher: Launcher) -> dict[str, Any]:
    (event,) = launcher.wait(DEADLINE_S)
    assert isinstance(event, Progress)
    return event.data


def run(launcher: Launcher, function: str, **payload: Any) -> Finished:
    return launcher.run(Job(f"{LAUNCHER_JOBS}:{function}", payload))


def test_a_job_returns_its_result_and_logs_what_it_prints(light: Launcher, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    payload = {"text": "é\n", "number": 1.5, "none": None, "list": [1, 2]}
    finished = light.run(Job(f"{LAUNCHER_JOBS}:echo", payload, log=log))
    assert (finished.status, finished.result) == ("ok", payload)
    assert log.read_text().splitlines() == ["to the log", "and errors"]


def test_a_users_error_comes_with_its_sentence(light: Launcher) -> None:
    finished = run(light, "refuse")
    assert (finished.status, finished.cause) == ("user_error", "rate=-1 must be above 0")


def test_an_exception_comes_with_type_message_and_traceback(light: Launcher) -> None:
    finished = run(light, "fail")
    assert finished.status == "crashed"
    assert (finished.error_type, finished.cause) == ("ZeroDivisionError", "by nought")
    assert finished.traceback is not None
    assert "in fail" in finished.traceback


def test_a_result_that_json_cannot_hold_is_a_crash(light: Launcher) -> None:
    finished = run(light, "return_what_json_cannot_hold")
    assert (finished.status, finished.error_type) == ("crashed", "TypeError")


@pytest.mark.parametrize("target", [f"{LAUNCHER_JOBS}:nothing", "no_such_module:function"])
def test_a_target_that_is_not_there_is_a_crash(light: Launcher, target: str) -> None:
    assert light.run(Job(target)).status == "crashed"


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGABRT"])
def test_death_by_signal_names_it(light: Launcher, name: str) -> None:
    finished = run(light, "die", signal=signal.Signals[name])
    assert (finished.status, finished.signal) == ("killed", name)
    assert finished.cause is not None
    assert name in finished.cause


def test_a_native_crash_leaves_its_stack_in_the_log(light: Launcher, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    finished = light.run(Job(f"{LAUNCHER_JOBS}:crash_natively", log=log))
    assert (finished.status, finished.signal) == ("killed", "SIGSEGV")
    assert "in crash_natively" in log.read_text()


def test_an_exit_without_a_result_is_a_crash(light: Launcher) -> None:
    finished = run(light, "leave")
    assert (finished.status, finished.exit_code) == ("crashed", 3)


def test_an_out_of_memory_error_is_a_crash_with_its_text(launcher: Launcher) -> None:
    finished = launcher.run(Job(f"{DEVICE_JOBS}:allocate_bytes", {"bytes": 1 << 45}))
    assert (finished.status, finished.error_type) == ("crashed", "torch.OutOfMemoryError")
    assert finished.cause is not None
    assert finished.cause.startswith("CUDA out of memory")


def test_progress_comes_in_order_and_before_the_end(light: Launcher) -> None:
    # Together the messages are far larger than what a pipe or a socket holds.
    number = light.submit(Job(f"{LAUNCHER_JOBS}:report_steps", {"steps": 300, "filler": 10_000}))
    events: list[Event] = []
    while light.running:
        events += light.wait(DEADLINE_S)
    assert events[-1] == Finished(number, "ok", result="done")
    steps = [event.data["step"] for event in events[:-1] if isinstance(event, Progress)]
    assert steps == list(range(300))


def test_jobs_run_side_by_side(light: Launcher) -> None:
    sleepers = [light.submit(Job(f"{LAUNCHER_JOBS}:sleep")) for _ in range(2)]
    quick = light.submit(Job(f"{LAUNCHER_JOBS}:echo", {"a": 1}))
    pids: list[int] = []
    done: list[int] = []
    while len(pids) < 4 or not done:
        for event in light.wait(DEADLINE_S):
            if isinstance(event, Progress):
                pids += event.data["pids"]
            else:
                done.append(event.job)
    assert done == [quick]
    assert all(is_alive(pid) for pid in pids)
    for sleeper in sleepers:
        light.terminate(sleeper)
    ended: list[Event] = []
    while light.running:
        ended += light.wait(DEADLINE_S)
    assert {e.status for e in ended if isinstance(e, Finished)} == {"interrupted"}
    assert wait_until(lambda: not any(is_alive(pid) for pid in pids))


def test_an_interrupted_job_may_clean_up(light: Launcher, tmp_path: Path) -> None:
    path = tmp_path / "kept"
    number = light.submit(Job(f"{LAUNCHER_JOBS}:clean_up_when_interrupted", {"path": str(path)}))
    next_progress(light)
    light.terminate(number)
    (event,) = light.wait(DEADLINE_S)
    assert isinstance(event, Finished)
    assert event.status == "interrupted"
    assert path.read_text() == "kept"


def test_a_job_that_ignores_the_signal_is_killed_with_what_it_started(light: Launcher) -> None:
    number = light.submit(Job(f"{LAUNCHER_JOBS}:sleep", {"ignore": True}))
    pids = next_progress(light)["pids"]
    light.terminate(number, grace_s=0.1)
    (event,) = light.wait(DEADLINE_S)
    assert isinstance(event, Finished)
    assert event.status == "interrupted"
    assert wait_until(lambda: not any(is_alive(pid) for pid in pids))


def test_a_signal_sent_at_once_is_not_lost(light: Launcher) -> None:
    numbers = [light.submit(Job(f"{LAUNCHER_JOBS}:sleep")) for _ in range(5)]
    for number in numbers:
        light.terminate(number, grace_s=600)
    while light.running:
        assert light.wait(DEADLINE_S)


def test_what_a_job_leaves_running_ends_with_it(light: Launcher) -> None:
    finished = run(light, "start_and_leave")
    assert finished.status == "ok"
    assert wait_until(lambda: not is_alive(finished.result))


def test_waiting_ends_after_the_timeout_or_when_nothing_runs(light: Launcher) -> None:
    assert light.wait() == []
    number = light.submit(Job(f"{LAUNCHER_JOBS}:sleep"))
    next_progress(light)
    assert light.wait(0.01) == []
    light.terminate(number)
    assert light.wait(DEADLINE_S)


def test_when_the_server_dies_its_jobs_fail_and_the_next_starts_another() -> None:
    with Launcher("cpu", modules=()) as launcher:
        number = launcher.submit(Job(f"{LAUNCHER_JOBS}:sleep"))
        pids = next_progress(launcher)["pids"]
        assert launcher.server_pid is not None
        os.kill(launcher.server_pid, signal.SIGKILL)
        (event,) = launcher.wait(DEADLINE_S)
        assert event == Finished(
            number, "killed", cause="the process that starts runs died (killed by SIGKILL)"
        )
        assert wait_until(lambda: not any(is_alive(pid) for pid in pids))
        assert run(launcher, "echo", a=1).status == "ok"


def test_a_server_that_died_idle_is_replaced_unnoticed() -> None:
    with Launcher("cpu", modules=()) as launcher:
        assert run(launcher, "echo").status == "ok"
        assert launcher.server_pid is not None
        os.kill(launcher.server_pid, signal.SIGKILL)
        assert wait_until(lambda: not is_alive(launcher.server_pid or 0))
        assert run(launcher, "echo").status == "ok"


def test_a_log_that_cannot_be_written_is_the_callers_error(light: Launcher, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no_folder"):
        light.submit(Job(f"{LAUNCHER_JOBS}:echo", log=tmp_path / "no_folder" / "run.log"))
    assert light.running == 0


def test_a_module_that_cannot_be_imported_fails_every_job() -> None:
    with Launcher("cpu", modules=("no_such_module",)) as launcher:
        finished = launcher.run(Job(f"{LAUNCHER_JOBS}:echo"))
    assert finished.status == "killed"
    assert finished.cause is not None
    assert finished.cause.startswith("cannot import no_such_module")


def test_closing_ends_what_runs() -> None:
    with Launcher("cpu", modules=()) as launcher:
        launcher.submit(Job(f"{LAUNCHER_JOBS}:sleep"))
        pids = next_progress(launcher)["pids"]
        pids.append(launcher.server_pid)
    assert wait_until(lambda: not any(is_alive(pid) for pid in pids))


def test_nothing_is_left_when_the_caller_is_killed() -> None:
    script = (
        "from bench.device.launcher import Job, Launcher\n"
        "launcher = Launcher('cpu', modules=())\n"
        f"launcher.submit(Job('{LAUNCHER_JOBS}:sleep'))\n"
        "(event,) = launcher.wait()\n"
        "print(*event.data['pids'], launcher.server_pid, flush=True)\n"
        "launcher.wait()\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    caller = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert caller.stdout is not None
    with caller.stdout as output:
        pids = [int(pid) for pid in output.readline().split()]
    assert len(pids) == 3
    assert all(is_alive(pid) for pid in pids)
    caller.kill()
    caller.wait()
    assert wait_until(lambda: not any(is_alive(pid) for pid in pids))


def test_server_and_jobs_are_out_of_reach_of_the_terminals_ctrl_c(light: Launcher) -> None:
    number = light.submit(Job(f"{LAUNCHER_JOBS}:sleep"))
    pids = next_progress(light)["pids"]
    assert light.server_pid is not None
    assert os.getpgid(light.server_pid) != os.getpgrp()
    assert os.getsid(light.server_pid) != os.getsid(0)
    assert {os.getpgid(pid) for pid in pids} == {pids[0]}
    light.terminate(number)
    assert light.wait(DEADLINE_S)


def test_the_preload_stays_with_the_job(launcher: Launcher) -> None:
    job = Job(
        f"{LAUNCHER_JOBS}:environment", environment={"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}
    )
    found = launcher.run(job).result
    expected = {
        "LD_PRELOAD": os.environ.get("LD_PRELOAD"),
        "PYTHONPATH": os.environ.get("PYTHONPATH"),
        "PYTORCH_ALLOC_CONF": "max_split_size_mb:64",
    }
    assert found == {"own": expected, "child": expected}


def test_the_server_forks_from_a_single_thread(launcher: Launcher) -> None:
    run(launcher, "echo")
    assert len(os.listdir(f"/proc/{launcher.server_pid}/task")) == 1


def test_a_job_computes_with_one_thread_unless_it_is_given_more(launcher: Launcher) -> None:
    threads = f"{LAUNCHER_JOBS}:threads"
    given = [launcher.run(Job(threads, threads=count)).result for count in (1, 3)]
    assert [launcher.run(Job(threads)).result, *given] == [1, 1, 3]


def test_the_callers_side_does_not_import_pytorch() -> None:
    modules = "bench.device.launcher, bench.device.probe, bench.device.exec"
    check = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
