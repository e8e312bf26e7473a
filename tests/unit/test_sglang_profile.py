"""What `bench.gpu.sglang_profile` finds in a trace."""

import pytest

from bench.gpu.sglang_profile import found_in

OURS = "/site-packages/radixkv/integrations/sglang/cache.py(120): checkpoint"
THEIRS = "sglang/srt/managers/scheduler.py(10): run_batch"


def frame(name, begin, end, tid=1):
    return {"cat": "python_function", "name": name, "tid": tid, "ts": begin, "dur": end - begin}


def runtime(name, at, tid=1, correlation=0):
    args = {"correlation": correlation}
    return {"cat": "cuda_runtime", "name": name, "tid": tid, "ts": at, "dur": 1, "args": args}


def test_a_wait_under_one_of_our_frames_is_ours():
    events = [
        frame(THEIRS, 0, 100),
        frame(OURS, 10, 50),
        frame("radixkv/tree/native_tree.py(3): insert", 20, 30),
        frame("torch/_tensor.py(1): cpu", 35, 45),
        runtime("cudaStreamSynchronize", 40),
        runtime("cudaStreamSynchronize", 60),
        runtime("cudaMemcpyAsync", 41),
    ]
    found = found_in(events)
    assert found["our_calls"] == {OURS: 1}
    assert found["waits_within_ours"] == {"cudaStreamSynchronize": 1}
    assert found["waits_of_the_process"] == {"cudaStreamSynchronize": 2}
    assert found["runtime_calls_within_ours"] == {"cudaStreamSynchronize": 1, "cudaMemcpyAsync": 1}


def test_a_wait_on_another_thread_is_not():
    found = found_in([frame(OURS, 0, 100), runtime("cudaDeviceSynchronize", 50, tid=2)])
    assert (found["waits_within_ours"], found["waits_of_the_process"]) == (
        {},
        {"cudaDeviceSynchronize": 1},
    )


@pytest.mark.parametrize(("memory", "waits"), [("Pageable", 1), ("Pinned", 0)])
def test_a_copy_to_memory_that_is_not_pinned_waits(memory, waits):
    copy = {"cat": "gpu_memcpy", "name": f"Memcpy DtoH (Device -> {memory})", "tid": 7, "ts": 9}
    events = [
        frame(OURS, 0, 100),
        runtime("cudaMemcpyAsync", 50, correlation=4),
        {**copy, "args": {"correlation": 4}},
    ]
    assert len(found_in(events)["waits_within_ours"]) == waits


def test_what_only_enqueues_does_not_wait():
    names = ["cudaMemcpyAsync", "cudaLaunchKernel", "cudaStreamWaitEvent", "cudaEventRecord"]
    events = [frame(OURS, 0, 100), *(runtime(name, 50) for name in names)]
    assert not found_in(events)["waits_within_ours"]
