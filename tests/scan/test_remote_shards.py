"""A set behind a URL is the set on a disk: the same numbers, ranges fetched alone, what fails told for what it is."""

from __future__ import annotations

import gzip
import json
import pickle
import sys
from typing import TYPE_CHECKING, Any

import builders
import pytest
import torch
from builders import make_sequences
from loopback_s3 import BUCKET, LoopbackS3, serve
from safetensors.torch import save, save_file
from same_state import assert_same, state_of

from eagle_parity.cli.app import run
from eagle_parity.errors import InputError, MissingExtraError
from eagle_parity.readers.containers import ranged_file
from eagle_parity.scan import remote_shards
from eagle_parity.scan.executors import Processes, ThisProcess
from eagle_parity.scan.look import look_at_file
from eagle_parity.scan.problem_kinds import NO_MASK
from eagle_parity.scan.remote_shards import RemoteFile, StorageError, open_storage, stamp_of
from eagle_parity.scan.run import ScanSettings, find_start, scan
from eagle_parity.scan.shards import find_shards
from eagle_parity.scan.summary import read_summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytest.importorskip("fsspec", reason="fsspec is not installed (make setup does): these tests read URLs")
pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = (5, 1, 17, 3, 70, 2, 4, 6, 9, 8, 7, 130)


def write_fp8(folder: Path, sequences: list[builders.Written]) -> Path:
    builders.write_stacked_fp8(folder, sequences)
    return folder


def write_capture(folder: Path, sequences: list[builders.Written]) -> Path:
    return builders.write_capture(folder, sequences, slots=(1, 4, 7), last_state="post_norm")


WRITERS: dict[str, Callable[..., Path]] = {
    "capture": write_capture,
    "stacked": builders.write_stacked,
    "stacked-fp8": write_fp8,
    "speculators-list": builders.write_speculators_list,
    "speculators-research": builders.write_speculators_research,
    "specforge": builders.write_specforge,
    "specforge-aux-only": builders.write_specforge_aux_only,
    "modelopt": builders.write_modelopt,
    "tensorrt-llm": builders.write_tensorrt_llm,
    "angelslim": builders.write_angelslim,
    "nemo": builders.write_nemo,
    "baldeagle": builders.write_baldeagle,
    "eagle-list": builders.write_eagle_list,
    "eagle-last-state": builders.write_eagle_last_state,
}
"""Those whose files stand for themselves; of Mooncake's objects several make one."""


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackS3]:
    for module in ("s3fs", "moto", "flask", "flask_cors"):
        pytest.importorskip(module, reason=f"{module} is not installed (make setup does): a storage on loopback")
    yield from serve()


@pytest.fixture
def s3(server: LoopbackS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LoopbackS3]:
    from s3fs import S3FileSystem

    settings = {
        "AWS_ENDPOINT_URL": server.address,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    S3FileSystem.clear_instance_cache()  # it keeps the settings of the process's first one
    server.given.clear()
    yield server
    server.before = lambda _method, _path: None
    server.require_keys(required=False)
    S3FileSystem.clear_instance_cache()


def remote_and_local(url: str, folder: Path) -> None:
    remote, local = find_shards(url), find_shards(str(folder))
    assert list(remote.names) == list(local.names)
    found = state_of(remote)
    assert found.counts.sequences
    assert_same(found, state_of(local), stamps=False)


# The same numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WRITERS)
def test_every_layout_is_what_it_is_on_a_disk(kind: str, s3: LoopbackS3, tmp_path: Path) -> None:
    folder = WRITERS[kind](tmp_path / "set", make_sequences(LENGTHS))
    remote_and_local(s3.put_folder(folder, kind), folder)


@pytest.mark.parametrize("small", [0, remote_shards.SMALL_BYTES])
@pytest.mark.parametrize("block", [7, 100, ranged_file.BLOCK_BYTES])
@pytest.mark.parametrize("kind", ["stacked", "specforge", "nemo"])
def test_whatever_is_fetched_at_once(
    kind: str, block: int, small: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranged_file, "BLOCK_BYTES", block)
    monkeypatch.setattr(remote_shards, "SMALL_BYTES", small)
    folder = WRITERS[kind](tmp_path / "set", make_sequences(LENGTHS))
    remote_and_local(f"file://{folder}", folder)


def test_files_of_before_torch_1_6(tmp_path: Path) -> None:
    folder = builders.write_specforge(tmp_path / "set", make_sequences(LENGTHS))
    for path in list(folder.rglob("*.ckpt")):
        content = torch.load(path)
        torch.save(content, path, _use_new_zipfile_serialization=False)
    remote_and_local(f"file://{folder}", folder)


def test_other_processes_connect_themselves(s3: LoopbackS3, tmp_path: Path) -> None:
    folder = builders.write_stacked(tmp_path / "set", make_sequences([9] * 40))
    listing = find_shards(s3.put_folder(folder, "processes"))
    assert_same(state_of(listing, Processes(2)), state_of(listing))


def test_one_file(s3: LoopbackS3, tmp_path: Path) -> None:
    folder = builders.write_specforge(tmp_path / "set", make_sequences([9]))
    (path,) = folder.rglob("*.ckpt")
    listing = find_shards(f"{s3.put_folder(folder, 'one')}/{path.relative_to(folder).as_posix()}")
    assert_same(state_of(listing), state_of(find_shards(str(path))), stamps=False)


def test_a_storage_in_memory_and_its_root() -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    memory = MemoryFileSystem()
    content = save({"hidden_states": torch.ones(4, 3, 8), "token_ids": torch.arange(4)})
    memory.pipe("/a-set/deep/hs_1.safetensors", content)
    try:
        for url, name in (("memory://a-set", "deep/hs_1.safetensors"), ("memory://", "a-set/deep/hs_1.safetensors")):
            listing = find_shards(url)
            assert listing.names == [name]
            assert state_of(listing).counts.rows == 4
    finally:
        memory.rm("/a-set", recursive=True)


# What is fetched ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["safetensors", "torch"])
def test_of_a_large_file_ranges_alone_are_fetched(kind: str, s3: LoopbackS3, tmp_path: Path) -> None:
    sequences = make_sequences([20_000], hidden=256)
    write = builders.write_stacked if kind == "safetensors" else builders.write_specforge
    folder = write(tmp_path / "set", sequences)
    suffix = ".safetensors" if kind == "safetensors" else ".ckpt"
    (path,) = folder.rglob(f"*{suffix}")
    listing = find_shards(s3.put_folder(folder, f"large-{kind}"))
    s3.given.clear()
    found = state_of(listing)
    fetched = s3.bytes_of(f"/{BUCKET}/large-{kind}/{path.relative_to(folder).as_posix()}")
    states = 64 * 4 * 256 * 2
    ids = 20_000 * 8
    assert path.stat().st_size > 40_000_000
    # Ids and mask as a whole, 64 rows of four states, and a block wherever there is some of the header.
    assert states + ids < fetched < states + 2 * ids + 6 * ranged_file.BLOCK_BYTES
    assert_same(found, state_of(find_shards(str(folder))), stamps=False)


def test_a_small_file_takes_one_request_and_two_questions(s3: LoopbackS3, tmp_path: Path) -> None:
    folder = builders.write_specforge(tmp_path / "set", make_sequences([30]))
    (path,) = folder.rglob("*.ckpt")
    listing = find_shards(s3.put_folder(folder, "small"))
    s3.given.clear()
    state_of(listing)
    key = f"/{BUCKET}/small/{path.relative_to(folder).as_posix()}"
    assert sorted(method for method, given, _ in s3.given if given == key) == ["GET", "HEAD", "HEAD"]


# What lies beside ---------------------------------------------------------------------------------------------------


def test_companions_are_found_beside_and_above(s3: LoopbackS3, tmp_path: Path) -> None:
    config = {"speculators_version": "0.3.0", "hidden_states": {"layer_ids": [2, 5, 7, 9]}}
    folder = builders.write_speculators_list(tmp_path / "set" / "below", make_sequences([5]), layer_ids=None)
    (folder.parent / "data_config.json").write_text(json.dumps(config))
    for url in (f"file://{folder.parent}", f"{s3.put_folder(folder.parent, 'companions')}"):
        listing = find_shards(url)
        declared = listing.shards.companions(listing.names[0]).data_config
        assert declared == config
    remote_and_local(url, folder.parent)


def test_a_first_token_is_passed_on(tmp_path: Path) -> None:
    folder = builders.write_specforge(tmp_path, make_sequences([5]))
    listing = find_shards(f"file://{folder}", first_token=7)
    assert listing.shards.companions(listing.names[0]).first_token == 7


def test_masks_of_an_arrow_dataset_are_on_a_disk_alone(tmp_path: Path) -> None:
    folder = builders.write_stacked(tmp_path / "set", make_sequences(LENGTHS), speculators=True)
    remote, local = state_of(find_shards(f"file://{folder}")), state_of(find_shards(str(folder)))
    assert (local.counts.mask_tokens > 0, remote.counts.mask_tokens) == (True, 0)
    untold = remote.problems.pop(NO_MASK)
    assert untold.count == len(remote.places_N2)
    assert "copy the folder to a disk" in untold.examples[0][1]
    remote.counts.mask_tokens, remote.counts.masked_tokens = local.counts.mask_tokens, local.counts.masked_tokens
    assert_same(remote, local, stamps=False)
    listing = find_shards(f"file://{folder}")
    dataset = listing.shards.companions(listing.names[0]).prepared_dataset
    assert dataset is not None
    assert "copy the folder to a disk" in dataset.problem


def test_beside_a_bucket_nothing_is_looked_for(s3: LoopbackS3) -> None:
    listing = find_shards(f"s3://{BUCKET}")
    s3.given.clear()
    listing.shards.companions("a.pt")
    assert {path.split("/")[1] for _, path, _ in s3.given} == {BUCKET}


# What is wrong with a file ------------------------------------------------------------------------------------------


def problem_of(look: Any) -> str:
    ((kind, _, reason),) = look.problems
    assert kind == "unreadable"
    return str(reason)


def test_what_has_to_be_read_whole_is_refused_and_the_others_are_read(s3: LoopbackS3, tmp_path: Path) -> None:
    folder = builders.write_specforge(tmp_path / "set", make_sequences([5, 6, 7]))
    packed = next(iter(folder.rglob("*.ckpt")))
    packed.with_name("data_packed.ckpt.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.with_name("object.bin").write_bytes(b"bare bytes")
    packed.with_name("sample_hs").write_bytes(b"bare bytes")
    packed.with_name("broken.pt").write_bytes(packed.read_bytes()[:-100])
    packed.with_name("empty.pt").touch()
    found = state_of(find_shards(s3.put_folder(folder, "refused")))
    assert (found.counts.sequences, found.problems["unreadable"].count) == (3, 5)
    reasons = {name.rpartition("/")[2]: reason for name, reason in found.problems["unreadable"].examples}
    assert "copy the folder to a disk" in reasons["data_packed.ckpt.gz"]
    assert "copy the folder to a disk" in reasons["object.bin"]
    assert "copy the folder to a disk" in reasons["sample_hs"]
    assert "truncated" in reasons["broken.pt"]
    assert reasons["empty.pt"] == "an empty file"


@pytest.mark.parametrize("small", [0, remote_shards.SMALL_BYTES])
def test_a_file_that_vanishes_or_changes(
    small: int, s3: LoopbackS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_shards, "SMALL_BYTES", small)
    monkeypatch.setattr(ranged_file, "BLOCK_BYTES", 100)
    folder = builders.write_stacked(tmp_path / "set", make_sequences([90, 90]))
    first = min(path.name for path in folder.rglob("*.safetensors"))
    url = s3.put_folder(folder, f"changing-{small}")
    key = f"changing-{small}/{first}"
    content = (folder / first).read_bytes()
    listing = find_shards(url)
    assert first in listing.names

    def at_request(number: int, act: Callable[[], object]) -> None:
        seen: list[str] = []

        def before(method: str, path: str) -> None:
            if path.endswith(first) and method in {"GET", "HEAD"}:
                seen.append(method)
                if len(seen) == number:
                    act()

        s3.before = before

    def delete() -> None:
        s3.client().delete_object(Bucket=BUCKET, Key=key)

    delete()
    assert "it vanished" in problem_of(look_at_file(listing.shards, first, rows=64))
    last = 3 if small else 5  # HEAD, what is fetched, HEAD
    for number in range(2, last + 1):
        s3.put(key, content)
        at_request(number, delete)
        reason = problem_of(look_at_file(listing.shards, first, rows=64))
        assert "vanished" in reason or "can't be read any more" in reason
        s3.put(key, content)
        at_request(number, lambda: s3.put(key, content[:-2] + b"xx"))
        assert "it changed" in problem_of(look_at_file(listing.shards, first, rows=64))
        s3.put(key, content)
        at_request(number, lambda: s3.put(key, content[:400]))
        reason = problem_of(look_at_file(listing.shards, first, rows=64))
        assert "it changed" in reason or "has become shorter" in reason or "can't be read any more" in reason
    s3.before = lambda _method, _path: None
    s3.put(key, content)
    assert not look_at_file(listing.shards, first, rows=64).problems


def test_a_file_that_is_refused_is_one_file(s3: LoopbackS3, tmp_path: Path) -> None:
    folder = builders.write_stacked(tmp_path / "set", make_sequences([9, 9, 9]))
    listing = find_shards(s3.put_folder(folder, "forbidden"))
    refused = listing.names[1]
    s3.before = lambda _method, path: "403 Forbidden" if path.endswith(refused) else None
    found = state_of(listing)
    assert (found.counts.sequences, found.problems["unreadable"].examples[0][0]) == (2, refused)


def test_keys_that_no_disk_would_have(s3: LoopbackS3) -> None:
    content = save({"hidden_states": torch.ones(4, 3, 8), "token_ids": torch.arange(4)})
    kept = ["a//b.safetensors", "/c.safetensors", "d e\u00e9%2F#?.safetensors", "-\u202ef.safetensors", "g'\"*[h].pt"]
    for name in [
        *kept,
        "../up.safetensors",
        "./here.safetensors",
        ".hidden/i.safetensors",
        "vocab_mapping.pt",
        "j.txt",
    ]:
        s3.put(f"hostile/{name}", content)
    listing = find_shards(f"s3://{BUCKET}/hostile")
    assert sorted(listing.names) == sorted(kept)
    found = state_of(listing)
    assert (found.counts.sequences, found.problems) == (len(kept), {})


# What is wrong with a storage ---------------------------------------------------------------------------------------


def test_a_missing_bucket_or_folder_is_one_line(s3: LoopbackS3, capsys: pytest.CaptureFixture[str]) -> None:
    s3.put("only-text/readme.txt", b"text")
    for url, reason in (
        ("s3://no-such-bucket/set", "can't be listed"),
        (f"s3://{BUCKET}/no-such-folder", "there is no file"),
        (f"s3://{BUCKET}/only-text", "no shards in it (1 other files)"),
    ):
        assert run(["scan", url]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert url in line
        assert reason in line


def test_wrong_keys_and_none_are_one_line(
    s3: LoopbackS3, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from s3fs import S3FileSystem

    s3.require_keys(required=True)
    assert run(["scan", f"s3://{BUCKET}/set"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "can't be listed" in line
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    S3FileSystem.clear_instance_cache()
    assert run(["scan", f"s3://{BUCKET}/set"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "can't be listed" in line
    assert "credentials" in line


@pytest.mark.parametrize("status", ["403 Forbidden", "400 Bad Request"])
def test_a_storage_that_answers_no_more_ends_the_scan_which_goes_on_later(
    status: str, s3: LoopbackS3, tmp_path: Path
) -> None:
    folder = builders.write_stacked(tmp_path / "set", make_sequences([9] * 40))
    url = s3.put_folder(folder, "ends")
    listing = find_shards(url)
    summary = tmp_path / "summary"
    settings = ScanSettings(url, 64, summary=str(summary))
    middle = listing.names[20]
    gone: list[str] = []

    def before(_method: str, path: str) -> str | None:
        gone.extend([path] if path.endswith(middle) else [])
        return status if gone else None

    s3.before = before
    start = find_start(listing, settings, fresh=False)
    with pytest.raises(StorageError, match="doesn't answer any more"):
        scan(listing, settings, ThisProcess(), start)
    s3.before = lambda _method, _path: None
    listing = find_shards(url)
    start = find_start(listing, settings, fresh=False)
    assert start.note.startswith("going on behind 20 files")
    scan(listing, settings, ThisProcess(), start)
    assert_same(read_summary(summary)[0], state_of(listing))


def test_a_reference_is_refused_before_anything_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scan", "s3://no-such-bucket/set", "--reference", "capture"]) == 2
    assert "--reference takes shards on a disk" in capsys.readouterr().err


def test_stamps_of_the_list_are_those_of_the_files(s3: LoopbackS3, tmp_path: Path) -> None:
    folder = builders.write_stacked(tmp_path / "set", make_sequences([9] * 3))
    listing = find_shards(s3.put_folder(folder, "stamps"))
    assert {name: listing.shards.stamp(name) for name in listing.names} == listing.stamps


def test_without_a_version_a_list_has_no_stamps() -> None:
    assert stamp_of({"size": 5}) == (5, "")
    assert not remote_shards._told({"a": stamp_of({"size": 5})})


def test_a_missing_client_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    from fsspec.registry import _registry

    monkeypatch.delitem(_registry, "s3", raising=False)
    with pytest.raises(InputError, match=r"no client for s3 is installed"):
        open_storage("s3://bucket/set")
    with pytest.raises(InputError, match="nosuch"):
        open_storage("nosuch://bucket/set")


def test_missing_fsspec_names_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingExtraError, match=r"eagle-parity\[remote\]"):
        find_shards("s3://bucket/set")
    assert run(["scan", "s3://bucket/set"]) == 2
    assert "eagle-parity[remote]" in capsys.readouterr().err


def test_a_machine_without_the_client_says_nothing_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file({"hidden_states": torch.ones(4, 3, 8), "token_ids": torch.arange(4)}, tmp_path / "hs_0.safetensors")
    listing = find_shards(f"file://{tmp_path}")
    elsewhere = pickle.loads(pickle.dumps(listing.shards))  # noqa: S301  our own
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(StorageError, match=r"eagle-parity\[remote\]"):
        look_at_file(elsewhere, listing.names[0], rows=64)
    told = pickle.loads(pickle.dumps(StorageError("told")))  # noqa: S301  our own
    assert (type(told), str(told)) == (StorageError, "told")


def test_a_file_has_no_view(tmp_path: Path) -> None:
    assert RemoteFile(open_storage(f"file://{tmp_path}"), "a", 5).view(0, 5) is None
