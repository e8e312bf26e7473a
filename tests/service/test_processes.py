"""Clients in processes of their own: forked, killed, without torch."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import pytest

from radixkv import errors
from radixkv.service import CacheServer
from tests.support.service import hold


def start(script: str, *args: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", script, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )


FORK_AFTER = """
import os
from radixkv import PrefixCache
from radixkv.errors import ForkedProcessError
from radixkv.service import CacheServer, Client

def raises(call):
    try:
        call()
    except ForkedProcessError as error:
        return f"forked from {os.getppid()}" in str(error)
    return False

with CacheServer(PrefixCache(4), "127.0.0.1:0") as server, Client(server.address) as client:
    client.match([1], timeout_s=60)
    child = os.fork()
    if not child:
        good = (
            raises(lambda: client.match([1]))
            and raises(lambda: Client(server.address))
            and raises(lambda: CacheServer(PrefixCache(4), "127.0.0.1:0").start())
        )
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert client.match([1], timeout_s=60).lengths == [0]
print("done")
"""

FORK_BEFORE = """
import os, sys
from radixkv.service import Client

child = os.fork()
with Client(sys.argv[1]) as client:
    lengths = client.match([1, 2, 3], timeout_s=30).lengths
if not child:
    os._exit(0 if lengths == [2] else 1)
assert os.waitpid(child, 0)[1] == 0
print("done", lengths)
"""


def test_B23_a_fork_after_the_first_client_is_an_error_at_once():
    process = start(FORK_AFTER)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "done\n"), err


def test_B23_a_fork_before_the_first_client_works(cache, server):
    hold(cache, [1, 2])
    process = start(FORK_BEFORE, server.address)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "done [2]\n"), err


ASK_FOREVER = """
import sys
from radixkv.service import Client

client = Client(sys.argv[1])
print("asking", flush=True)
while True:
    client.match([[1, 2, 3]] * 1000, timeout_s=60)
"""


def test_clients_killed_in_the_middle_of_a_call_harm_no_other(cache, server, client):
    """kill -9, while their calls wait for the engine and while they are answered."""
    hold(cache, [1, 2])
    processes = [start(ASK_FOREVER, server.address) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "asking\n"
    with cache.lock:
        time.sleep(0.2)
        processes[0].kill()
    processes[1].kill()
    for process in processes:
        assert process.wait() == -signal.SIGKILL
        process.communicate()
    assert client.match([1, 2]).lengths == [2]
    assert cache.check_integrity() == []
    assert cache.stats().protected == 0


def test_a_client_loads_no_torch():
    script = "import sys, radixkv.service; print('torch' in sys.modules)"
    process = start(script)
    out, err = process.communicate(timeout=60)
    assert out == "False\n", err


def test_one_client_in_many_threads_beside_a_working_engine(cache, client):
    """Every answer is true of some moment; nothing is lost, nothing raises."""
    prompts = [[n] * (n + 1) for n in range(1, 6)]
    done, wrong = threading.Event(), []

    def work():
        while not done.is_set():
            for prompt in prompts:
                hold(cache, prompt)
            cache.evict(3)

    def ask():
        try:
            for _ in range(40):
                for prompt, length in zip(prompts, client.match(prompts).lengths, strict=True):
                    if not 0 <= length <= len(prompt):
                        wrong.append((prompt, length))
        except errors.RadixKVError as error:
            wrong.append(error)

    engine = threading.Thread(target=work)
    askers = [threading.Thread(target=ask) for _ in range(4)]
    for thread in (engine, *askers):
        thread.start()
    for thread in askers:
        thread.join()
    done.set()
    engine.join()
    assert wrong == []
    assert cache.check_integrity() == []


@pytest.mark.parametrize("message", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 4096, os.urandom(4096)])
def test_what_is_no_grpc_is_cut_off(server, client, message):
    import socket

    if server.address.startswith("unix:"):
        family, where = socket.AF_UNIX, server.address.removeprefix("unix:")
    else:
        host, port = server.address.split(":")
        family, where = socket.AF_INET, (host, int(port))
    with socket.socket(family) as raw:
        raw.settimeout(30)
        raw.connect(where)
        raw.sendall(message)
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(4096):
            pass
    assert client.match([1]).lengths == [0]


def test_a_script_that_ends_beside_a_server_prints_nothing():
    code = (
        "from radixkv import PrefixCache\n"
        "from radixkv.service import CacheServer\n"
        "server = CacheServer(PrefixCache(8), '127.0.0.1:0').start()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_unix_path_whose_server_takes_no_connections_now_is_taken(cache, tmp_path):
    """A full queue of connections does not keep another server waiting."""
    path = str(tmp_path / "full.sock")
    with socket.socket(socket.AF_UNIX) as listening, ExitStack() as stack:
        listening.bind(path)
        listening.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            waiting.connect_ex(path)
        with pytest.raises(errors.ListenError, match="the path is taken"):
            CacheServer(cache, f"unix:{path}").start()
