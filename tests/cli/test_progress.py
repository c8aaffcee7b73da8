"""Progress off a terminal: a line a stage on stderr, none when the input is refused; Ctrl-C ends in one line."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from vid2phys.commands.progress import show_progress


def test_lines_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress() as progress:
        progress("reading")
        assert capsys.readouterr().err == ""
        progress("tracking", 1, 10)
        progress("tracking", 2, 10)
        progress("fitting")
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split("] ")[1] for line in err.splitlines()] == ["reading", "tracking", "fitting"]
    assert "\x1b" not in err


def test_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(quiet=True) as progress:
        progress("reading")
        progress("tracking")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_interruption_ends_in_one_line(sent: signal.Signals) -> None:
    code = (
        "import sys, time, types\n"
        "task = types.ModuleType('vid2phys.commands.identify.pipeline')\n"
        "def identify(*_, **__):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(30)\n"
        "task.identify = identify\n"
        "sys.modules['vid2phys.commands.identify.pipeline'] = task\n"
        "sys.argv = ['vid2phys', 'identify', 'c.mp4', '--mesh', 'm.obj', '--camera', 'c.yaml']\n"
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from vid2phys.cli import main\n"
        "main()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        assert p.stdout is not None
        assert p.stdout.readline() == "ready\n"
        p.send_signal(sent)
        _, err = p.communicate(timeout=20)
    assert p.returncode == 130
    assert err == "vid2phys: interrupted\n"
