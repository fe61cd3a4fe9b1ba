"""What a server is started with, by release; and the hook as one file, in an interpreter without this package."""

from __future__ import annotations

import ast
import importlib.resources
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file
from test_sglang_hook import Session, Target, hook, run

from eagle_parity.capture.launching import (
    EXPORTED_NAME,
    SGLANG_HOOK_MODULES,
    as_shell,
    exported_sglang_hook,
    flags_against,
    sglang_flags,
    vllm_environment,
)
from eagle_parity.capture.servers.sglang import EXPORTED_HOOK, HOOK_FACTORY, spool_of_hook
from eagle_parity.capture.sglang import modules, tap
from eagle_parity.capture.spool.folder import SPOOL_ENV
from eagle_parity.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

PIECEWISE = ["--disable-piecewise-cuda-graph"]
BACKEND = ["--cuda-graph-backend-prefill", "disabled"]


@pytest.mark.parametrize(
    ("version", "graphs"),
    [
        ("0.5.10", PIECEWISE),
        ("0.5.11", PIECEWISE),
        ("0.5.12.post1", PIECEWISE),
        ("0.5.13.post1", PIECEWISE),
        ("0.5.14", BACKEND),
        ("0.5.19", BACKEND),
        ("0.5.23", BACKEND),
        (None, BACKEND),
    ],
)
@pytest.mark.parametrize("exported", [False, True])
def test_sglangs_flags_of_each_release(version: str | None, graphs: list[str], exported: bool) -> None:
    flags = sglang_flags(version, "/a spool", exported=exported)
    assert flags[0] == "--forward-hooks"
    assert flags[2:] == graphs
    (spec,) = hooks = json.loads(flags[1])
    assert str(spool_of_hook(hooks)) == "/a spool"
    assert spec["hook_factory"] == (EXPORTED_HOOK if exported else HOOK_FACTORY)
    assert spec["target_modules"] == list(modules.TARGET_MODULES)
    assert as_shell(flags).startswith("--forward-hooks '[{")


@pytest.mark.parametrize("version", ["0.5.8", "0.5.9"])
def test_releases_without_request_ids(version: str) -> None:
    with pytest.raises(UsageError, match="no request ids"):
        sglang_flags(version, "/spool")


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("0.25.0", "VLLM_SERVER_DEV_MODE"),
        ("0.25.1", "VLLM_SERVER_DEV_MODE"),
        ("0.26.0", "VLLM_PLUGINS"),
        ("0.28.0", "VLLM_PLUGINS"),
        ("0.32.0", "VLLM_PLUGINS"),
        (None, "VLLM_PLUGINS"),
    ],
)
def test_vllms_environment_of_each_release(version: str | None, name: str) -> None:
    assert set(vllm_environment(version, "/spool")) == {name, SPOOL_ENV}


def test_flags_against_what_makes_a_capture_incomplete() -> None:
    assert flags_against("sglang", "prefix") == "--disable-radix-cache"
    assert flags_against("vllm", "prefix") == "--no-enable-prefix-caching"


def top_names(source: str) -> set[str]:
    """What a module defines itself: imports aside."""
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return names


def test_the_exported_modules_take_no_name_from_each_other() -> None:
    owners: dict[str, list[str]] = {}
    package = importlib.resources.files("eagle_parity.capture")
    for module in SGLANG_HOOK_MODULES:
        source = package.joinpath(f"{module.replace('.', '/')}.py").read_text("utf-8")
        for name in top_names(source):
            owners.setdefault(name, []).append(module)
        # One file has no modules to import as a whole, and no other names for what it has.
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("eagle_parity"):
                own = str(node.module).removeprefix("eagle_parity.capture.")
                assert own in SGLANG_HOOK_MODULES
                assert not [alias.name for alias in node.names if alias.asname]
    assert not {name: modules for name, modules in owners.items() if len(modules) > 1}


def test_the_exported_hook_imports_alone(tmp_path: Path) -> None:
    """With torch and safetensors, in an empty folder, without the environment's and the user's own paths."""
    (tmp_path / EXPORTED_NAME).write_text(exported_sglang_hook())
    program = f"""
import importlib.abc, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {{"eagle_parity", "msgspec", "httpx", "yaml", "typer", "transformers", "sglang"}}:
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
sys.path.insert(0, {str(tmp_path)!r})
import {EXPORTED_NAME.removesuffix(".py")} as hook
assert "torch" not in sys.modules
assert callable(hook.factory({{"spool": {str(tmp_path / "spool")!r}}}))
"""
    empty = tmp_path / "empty"
    empty.mkdir()
    ran = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", program], capture_output=True, text=True, check=False, cwd=empty
    )
    assert ran.returncode == 0, ran.stderr
    assert not list(empty.iterdir())
    assert (tmp_path / "spool" / "token").is_file()


ONE_FILE = """
import importlib.abc, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "eagle_parity":
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
sys.path.insert(0, sys.argv[1])
import eagle_parity_sglang as hook
import torch
from types import SimpleNamespace

hook.MIN_FREE_BYTES = 0
hook.parallel_facts = lambda: {"tp_size": 2, "tp_rank": 1}

class Model(torch.nn.Module):
    layers_to_capture = [1, 2, 3]
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Identity()])
    def forward(self):
        pass

class LogitsProcessor(torch.nn.Module):
    def forward(self, *args):
        pass

model, processor = Model(), LogitsProcessor()
made = hook.factory({"spool": sys.argv[2]})
for module in (model, processor):
    module.register_forward_hook(made)
given = torch.load(sys.argv[3], weights_only=True)
rid = hook.request_id(hook.read_token(sys.argv[2]), sys.argv[4], 0)
batch = SimpleNamespace(rids=[rid], extend_seq_lens_cpu=[5], positions=given["positions"],
                        forward_mode=SimpleNamespace(name="EXTEND"))
model()
processor(given["token_ids"], given["last_state"], None, batch, [given[f"slot.{i}"] for i in range(3)])
assert not [name for name in sys.modules if name.partition(".")[0] == "eagle_parity"]
"""


def test_the_exported_hook_records_what_the_package_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eagle_parity.capture.spool.limits.MIN_FREE_BYTES", 0)
    monkeypatch.setattr(tap, "_spools", {})
    monkeypatch.setattr(tap, "parallel_facts", lambda: {"tp_size": 2, "tp_rank": 1})
    own = Session(tmp_path / "own")
    target = Target()
    hook(target, own.spool)
    run(target, [(own.rid(0), 0, 5)])
    part = own.spool / own.name / "tp1-000000-aux.safetensors"
    recorded = load_file(part)
    torch.save(recorded, tmp_path / "given.pt")

    source = exported_sglang_hook()
    assert "from eagle_parity" not in source
    compile(source, EXPORTED_NAME, "exec")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / EXPORTED_NAME).write_text(source)
    other = Session(tmp_path / "other")
    words = [str(tmp_path / "path"), str(other.spool), str(tmp_path / "given.pt"), other.name]
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", ONE_FILE, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    again = load_file(other.spool / other.name / "tp1-000000-aux.safetensors")
    assert again.keys() == recorded.keys()
    for name, tensor in recorded.items():
        assert torch.equal(again[name], tensor)
    kept = ("spool_version", "rank", "parts", "tokens", "limit", "skipped", "failures")
    assert [other.content[name] for name in kept] == [own.content[name] for name in kept]
    assert other.content.keys() == own.content.keys()
    assert other.content["facts"].keys() == own.content["facts"].keys()


WORKER_MODULES = """
import importlib.abc, importlib.util, sys, sysconfig

ALLOWED = {"torch", "safetensors", "eagle_parity"}

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in ALLOWED or top in sys.stdlib_module_names:
            return None
        # What torch itself imports is its own affair.
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_globals.get("__name__", "").partition(".")[0] == "torch":
                return None
            frame = frame.f_back
        raise ImportError(f"{name} is neither torch nor safetensors nor of the standard library")

sys.meta_path.insert(0, Blocked())
import eagle_parity.capture.sglang
import eagle_parity.capture.vllm
assert "torch" not in sys.modules, "torch is imported before anything is captured"
import torch, safetensors.torch
eagle_parity.capture.sglang.factory({"spool": sys.argv[1]})
print(" ".join(sorted(name for name in sys.modules if name.partition(".")[0] == "eagle_parity")))
"""


def test_what_runs_in_a_worker_imports_torch_safetensors_and_the_standard_library(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EAGLE_PARITY")}
    ran = subprocess.run(
        [sys.executable, "-c", WORKER_MODULES, str(tmp_path / "spool")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert ran.returncode == 0, ran.stderr
    own = {"eagle_parity", "eagle_parity.capture", *(f"eagle_parity.capture.{name}" for name in SGLANG_HOOK_MODULES)}
    own |= {f"eagle_parity.capture.{package}" for package in ("spool", "sglang", "vllm")}
    names = set(ran.stdout.split())
    assert {name for name in names if not name.startswith("eagle_parity.capture.vllm.")} == own
