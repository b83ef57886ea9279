"""F16: forks, exits, signals, threads and collection in the middle of the engine's work.

Every case is a script in a child process: it must end without help, print the expected output, and
leave a readable store.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pytest

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.reliability

PRELUDE = """
import gc, os, pickle, signal, sys, threading, time, weakref
import numpy as np
import bedform as bf
# Whoever started the tests in the background has signals of the keyboard ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
path = sys.argv[1]
expected = np.arange(2_000_000, dtype="int32").reshape(2000, 1000)
store = bf.open(path, "r+")
array = store["t"]
def wait_for_child(pid):
    status = os.waitpid(pid, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 0, status
def soon(deed, seconds=0.05):
    timer = threading.Timer(seconds, deed)
    timer.start()
    return timer
def forever(deed):
    while True:
        deed()
"""

CASES = {
    "fork after open, then read in the child": """
        pid = os.fork()
        if pid == 0:
            os._exit(int(not (array[:] == expected).all()))
        wait_for_child(pid)
        print(int(array[1999, 999]))
    """,
    "fork after a read, then read in both": """
        array[:]
        pid = os.fork()
        assert (array[:] == expected).all()
        if pid == 0:
            os._exit(0)
        wait_for_child(pid)
        print("both")
    """,
    "fork after open, then write in the child": """
        pid = os.fork()
        if pid == 0:
            array[0, 0] = 7
            os._exit(0)
        wait_for_child(pid)
        print(int(array[0, 0]))
    """,
    "fork after open, then append in the child and see it in the parent": """
        pid = os.fork()
        if pid == 0:
            array.append(expected[:3])
            os._exit(0)
        wait_for_child(pid)
        print(array.shape[0])
    """,
    "fork while another thread reads, then read in the child": """
        threading.Thread(target=forever, args=(lambda: array[:],), daemon=True).start()
        for _ in range(10):
            time.sleep(0.01)
            pid = os.fork()
            if pid == 0:
                os._exit(int(not (array[100:300] == expected[100:300]).all()))
            wait_for_child(pid)
        print("ten children")
    """,
    "fork while another thread writes, then open and read in the child": """
        def write():
            array[:] = expected
        threading.Thread(target=forever, args=(write,), daemon=True).start()
        for _ in range(5):
            time.sleep(0.02)
            pid = os.fork()
            if pid == 0:
                again = bf.open(path)["t"][:]
                os._exit(int(not (again == expected).all()))
            wait_for_child(pid)
        print("five children")
    """,
    "fork again and again while threads read regions and elements": """
        def elements():
            for number in range(10**9):
                array[number % 2000, number % 1000]
        for _ in range(2):
            threading.Thread(target=forever, args=(lambda: array[:],), daemon=True).start()
            threading.Thread(target=elements, daemon=True).start()
        for _ in range(60):
            time.sleep(0.002)
            pid = os.fork()
            if pid == 0:
                right = (array[100:300] == expected[100:300]).all() and array[5, 5] == 5005
                os._exit(int(not right))
            wait_for_child(pid)
        print("sixty children")
    """,
    "fork in a session, then use it in the child and end it in the parent": """
        session = store.session(settle="later")
        session.write("t", expected[:1] + 1, start=(0, 0))
        session.commit()
        session.write("t", expected[:1] + 2, start=(0, 0))
        new = {"shape": (1,), "dtype": "int8"}
        deeds = [
            lambda: session.write("t", expected[:1], start=(0, 0)),
            lambda: session.write("t", expected[:1], start=(0, 0), copy=False),
            lambda: session.write_boxes("t", [1], [[0, 0]], [[1, 1]]),
            lambda: session.resize("t", (2000, 1001)),
            lambda: session.append("t", expected[:1]),
            lambda: session.create_arrays({"u": new}),
            lambda: session.wait(0),
            session.flush,
            session.commit,
            session.drain,
            lambda: session.__exit__(None, None, None),
        ]
        def is_refused(deed):
            try:
                deed()
            except bf.PoisonedError as error:
                return "forked" in str(error)
        pid = os.fork()
        if pid == 0:
            refused = all([is_refused(deed) for deed in deeds])
            session.close()
            with store.session() as own:
                own.write("t", expected[:1] + 3, start=(1, 0))
                own.write("t", expected[1:2], start=(1, 0))
            os._exit(int(not refused))
        wait_for_child(pid)
        assert int(array[0, 0]) == 1, "nothing was published"
        assert bf.open(path, "r+").recover()["live"] == 1, "the lock is held"
        session.commit()
        session.close()
        store.settle()
        print(int(array[0, 0]))
    """,
    "fork in a session, and the child ends in good order": """
        tier = path + "-tier"
        os.mkdir(tier)
        session = store.session(settle="later", burst=tier, durability="node")
        session.write("t", expected[:1] + 1, start=(0, 0))
        session.commit()
        session.write("t", expected[:1] + 2, start=(0, 0))
        if os.fork() == 0:
            sys.exit()
        os.wait()
        assert bf.open(path, "r+").recover(burst=tier)["live"] == 2, "in the tier and in the log"
        with session:
            pass
        store.settle()
        print(int(array[0, 0]))
    """,
    "fork while another thread writes in a session": """
        session = store.session(settle="later")
        threading.Thread(
            target=forever, args=(lambda: session.write("t", expected),), daemon=True
        ).start()
        for _ in range(10):
            time.sleep(0.01)
            pid = os.fork()
            if pid == 0:
                del session, store, array
                gc.collect()
                os._exit(0)
            wait_for_child(pid)
        print("ten children")
        sys.stdout.flush()
        os._exit(0)
    """,
    "a child that leaves without cleaning up": """
        pid = os.fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        array[0, :] = 1
        print(int(array[0].sum()))
    """,
    "the interpreter exits while a daemon thread reads": """
        threading.Thread(target=forever, args=(lambda: array[:],), daemon=True).start()
        time.sleep(0.1)
        print("bye")
    """,
    "the interpreter exits while a daemon thread writes": """
        def write():
            array[:] = expected
        threading.Thread(target=forever, args=(write,), daemon=True).start()
        time.sleep(0.1)
        print("bye")
    """,
    "the interpreter exits while threads open and close": """
        def work():
            bf.open(path)["t"][0]
        for _ in range(4):
            threading.Thread(target=forever, args=(work,), daemon=True).start()
        time.sleep(0.1)
        print("bye")
    """,
    "reading and writing in an exit handler": """
        import atexit
        def last():
            array[0, 0] = 5
            print(int(array[0, 0]))
        atexit.register(last)
    """,
    "the process leaves in the middle of a write": """
        print("gone", flush=True)
        soon(lambda: os._exit(0), 0.03)
        while True:
            array[:] = expected
    """,
    "the store is collected before the array": """
        gone = weakref.ref(store)
        del store
        gc.collect()
        assert (array[:] == expected).all()
        print("read")
    """,
    "handles in cycles, collected in any order": """
        for number in range(200):
            a = bf.open(path)
            b = [a, a["t"], a]
            b.append(b)
            if number % 3:
                b[1][0]
            if number % 2:
                del a, b
            if number % 50 == 0:
                gc.collect()
        gc.collect()
        print("collected")
    """,
    "handles that live until the module is torn down": """
        class Keeper:
            def __del__(self):
                try:
                    self.array[0]
                except BaseException:
                    pass
        keeper = Keeper()
        keeper.array, keeper.me = array, keeper
        print("kept")
    """,
    "an exception from a signal handler during a read": """
        class Stop(Exception): pass
        def stop(*_): raise Stop
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.15)
        try:
            forever(lambda: array[:])
        except Stop:
            print("stopped", (array[:] == expected).all())
    """,
    "an exception from a signal handler during a write": """
        class Stop(Exception): pass
        def stop(*_): raise Stop
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.15)
        def write():
            array[:] = expected
        try:
            forever(write)
        except Stop:
            print("stopped", (array[:] == expected).all())
    """,
    "Ctrl-C during reads": """
        soon(lambda: os.kill(os.getpid(), signal.SIGINT), 0.15)
        try:
            forever(lambda: array[:])
        except KeyboardInterrupt:
            print("interrupted", (array[:] == expected).all())
    """,
    "Ctrl-C during appends": """
        soon(lambda: os.kill(os.getpid(), signal.SIGINT), 0.2)
        done = 0
        try:
            while True:
                array.append(expected[:500])
                done += 1
        except KeyboardInterrupt:
            pass
        rows = array.shape[0]
        assert rows in (2000 + done * 500, 2500 + done * 500), (rows, done)
        assert (array[rows - 500:] == (expected[:500] if rows > 2000 else expected[-500:])).all()
        print("whole")
    """,
    "a storm of signals, each handled": """
        seen = []
        signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for _ in range(5):
            array[:] = expected
            assert (array[:] == expected).all()
        signal.setitimer(signal.ITIMER_REAL, 0)
        print("handled", len(seen) > 0)
    """,
    "many threads open, read and close": """
        def work():
            for _ in range(20):
                other = bf.open(path)
                assert int(other["t"][5, 5]) == 5005
                del other
        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print("joined")
    """,
    "many threads read one array, and it is dropped meanwhile": """
        def work(array):
            for _ in range(5):
                assert (array[:] == expected).all()
        threads = [threading.Thread(target=work, args=(array,)) for _ in range(8)]
        for thread in threads: thread.start()
        del array, store
        gc.collect()
        for thread in threads: thread.join()
        print("joined")
    """,
    "a pool of forked processes reads": """
        import multiprocessing
        def work(row):
            return int(array[row].sum())
        with multiprocessing.get_context("fork").Pool(4) as pool:
            sums = pool.map(work, range(0, 2000, 20))
        assert sums == [int(expected[row].sum()) for row in range(0, 2000, 20)]
        print("pooled")
    """,
    "handles go to another process": """
        again = pickle.loads(pickle.dumps(store))["t"]
        assert (again[:] == expected).all()
        print("pickled")
    """,
}

SAID = {
    "fork after open, then read in the child": "1999999",
    "fork after open, then write in the child": "7",
    "fork after open, then append in the child and see it in the parent": "2003",
    "fork in a session, then use it in the child and end it in the parent": "2",
    "fork in a session, and the child ends in good order": "2",
    "a child that leaves without cleaning up": "1000",
    "reading and writing in an exit handler": "5",
    "an exception from a signal handler during a read": "stopped True",
    "an exception from a signal handler during a write": "stopped True",
    "Ctrl-C during reads": "interrupted True",
    "a storm of signals, each handled": "handled True",
}


@pytest.mark.parametrize("case", CASES)
def test_the_process_ends_by_itself_and_the_store_is_whole(case: str, tmp_path: Path) -> None:
    path = tmp_path / "store.zarr"
    expected = np.arange(2_000_000, dtype="int32").reshape(2000, 1000)
    with bf.create(path) as store:
        store.create_array(
            "t",
            shape=expected.shape,
            dtype="int32",
            layout=bf.Regular(chunks=(100, 250), shards=(500, 1000)),
            codecs=["zstd"],
        )
        store["t"][:] = expected
    script = PRELUDE + textwrap.dedent(CASES[case])
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, str(path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=900,  # on the busiest machine
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.strip().startswith(SAID.get(case, "")) and done.stdout.strip()
    array = bf.open(path)["t"]
    assert array.verify() == []
    # Every element has its old or its new value; most scripts rewrite the same values.
    assert (array[1:2000] == expected[1:]).all()
    print("\nCOUNT lifecycle_cases 1")  # noqa: T201 - the stage reads it
