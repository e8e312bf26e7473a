"""`radixkv serve` without a model, in a process of its own."""

import re
import signal
import subprocess
import sys


class Alone:
    """A `radixkv serve` process."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "radixkv", "serve", *arguments]
        if "--listen" not in arguments:
            command += ["--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.address = self.said("listening")

    def said(self, what: str) -> str:
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        found = re.fullmatch(
            rf"radixkv: {what} on (\S+?)(, .* slots for engines elsewhere)?\n", line
        )
        assert found, line + self.process.stderr.read()
        return found[1]

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit code and what else was said."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        assert out == ""
        return self.process.returncode, err
