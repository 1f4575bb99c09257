"""A run in a process of its own: it ends with the process that started it, and its log says why it ended."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from rnd.config.presets import small
from rnd.jobs.process import last_line, start_process


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (b"", "no output"),
        (b"\n \n", "no output"),
        (b"first\nlast\n\n", "last"),
        (b"first\n" + b"x" * 100_000 + b"\nlast", "last"),
        (b"not UTF-8: \xff", "not UTF-8: \ufffd"),
    ],
)
def test_the_last_line_of_a_log(tmp_path, text, last):
    log = tmp_path / "run.log"
    log.write_bytes(text)
    assert last_line(log) == last


def test_a_run_saves_and_ends_with_the_process_that_started_it(tmp_path):
    config = replace(small("CartPole-v1"), frames=10**9, device="cpu", threads=1, out=str(tmp_path), name="run")
    log = tmp_path / "run.log"
    with log.open("wb") as output:
        process = start_process(config, tmp_path / "run.json", output, os.environ)
    try:
        assert os.getsid(process.pid) == process.pid  # Ctrl-C in the terminal does not reach it
        end = time.monotonic() + 60
        while not (tmp_path / "run" / "metrics.csv").exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        process.communicate(timeout=60)  # closes the pipe, as the end of this process would
    finally:
        process.kill()
    assert process.returncode == 75, log.read_text()
    assert "rnd resume" in last_line(log)
