"""A model by name, file, folder, pasted text or Hub id; each failure is one sentence and never a traceback."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors

from planner.errors import HubUnavailable, InvalidJob, PlannerError, UnknownName
from planner.hub import load_model

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
    "vocab_size": 128, "max_position_embeddings": 32,
}  # fmt: skip
# 2 blocks of 4 attention and 3 MLP matrices and 2 norms; embedding and head; last norm
NUM_PARAMS = 2 * (4 * 64 * 64 + 3 * 64 * 96 + 2 * 64) + 2 * 128 * 64 + 64
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> str:
        raise AssertionError("the Hub was asked")

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", refuse)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return folder


def one_sentence(error: PlannerError) -> str:
    assert "\n" not in str(error)
    assert len(str(error)) < 500
    return str(error)


def test_a_pasted_config_is_read() -> None:
    architecture = load_model("  " + json.dumps(CONFIG, indent=2) + "\n")
    assert architecture.num_params == NUM_PARAMS
    assert architecture.source == "pasted config.json"


def test_a_folder_and_its_file_are_the_same_model(model_folder: Path) -> None:
    from_folder, from_file = load_model(str(model_folder)), load_model(str(model_folder / "config.json"))
    assert from_folder == from_file
    assert from_folder.name == "my-model"
    assert from_folder.source == str(model_folder / "config.json")


def test_a_file_of_another_name_gives_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "tiny.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    assert load_model(str(tmp_path / "tiny.json")).name == "tiny"


def test_a_catalogue_name_is_answered_without_the_hub() -> None:
    assert load_model("meta-llama/Llama-2-7b-hf").num_params == 6_738_415_616
    assert load_model("llama-2-7b-chat-hf").name == "meta-llama/Llama-2-7b-chat-hf"


def test_a_mistyped_plain_name_suggests_near_ones() -> None:
    with pytest.raises(UnknownName) as caught:
        load_model("llama-2-7b-hff")
    assert "meta-llama/Llama-2-7b-hf" in one_sentence(caught.value)


def test_nothing_is_no_model() -> None:
    with pytest.raises(InvalidJob, match="no model is named"):
        load_model("  ")


@pytest.mark.parametrize("text", ["{", "{]", "[1]", '{"model_type": "llama"}', '{"a": NaN'])
def test_pasted_junk_is_one_sentence(text: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        load_model(text)
    one_sentence(caught.value)


def test_a_pasted_field_that_is_wrong_is_named() -> None:
    with pytest.raises(InvalidJob) as caught:
        load_model(json.dumps({**CONFIG, "vocab_size": -5}))
    assert caught.value.field == "vocab_size"


def test_a_pasted_book_is_refused() -> None:
    with pytest.raises(InvalidJob, match="1,000,002 characters"):
        load_model("{" + " " * 1_000_000 + "}")


def test_a_path_that_does_not_exist_is_told_so(tmp_path: Path) -> None:
    for text in (str(tmp_path / "none"), "./none/config.json", "none.json", "~/none/of/that"):
        with pytest.raises(InvalidJob, match="there is no file or folder") as caught:
            load_model(text)
        assert text in one_sentence(caught.value)


def test_a_folder_without_a_config_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match=r"has no config\.json"):
        load_model(str(tmp_path))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    huge = tmp_path / "config.json"
    with open(huge, "wb") as file:
        file.truncate(10**9)  # sparse
    with pytest.raises(InvalidJob, match="1,000,000,000 bytes"):
        load_model(str(huge))


def test_a_file_that_is_not_utf_8_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe{\x00}\x00")
    with pytest.raises(InvalidJob, match="not UTF-8"):
        load_model(str(tmp_path))


def test_a_device_or_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    for path in (tmp_path, tmp_path / "config.json", Path("/dev/zero")):
        with pytest.raises(InvalidJob, match="is not a file"):
            load_model(str(path))


def test_a_file_that_may_not_be_read_is_told_so(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(InvalidJob, match=r"cannot be read \(Permission denied\)"):
        load_model(str(model_folder))


def test_names_that_no_file_system_takes_are_plain_unknown_names() -> None:
    for text in ("x" * 5000, "a\0b"):
        with pytest.raises(UnknownName) as caught:
            load_model(text)
        one_sentence(caught.value)


def test_with_files_switched_off_a_path_is_only_an_unknown_name(model_folder: Path) -> None:
    with pytest.raises(UnknownName):
        load_model(str(model_folder), allow_files=False)
    with pytest.raises(UnknownName):
        load_model("/etc/passwd", allow_files=False)


def test_with_the_hub_switched_off_it_is_not_asked() -> None:
    with pytest.raises(HubUnavailable, match="the Hub is not asked here"):
        load_model("zzz-org/qqq-name", allow_hub=False)


# ---- the Hub ------------------------------------------------------------------------------------------------------


def from_hub(monkeypatch: pytest.MonkeyPatch, answer: Callable[[], str], cached: str = "") -> list[dict[str, Any]]:
    """Stands for the Hub, which `answer`s with a path or an error, and its cache, which has the file `cached` or nothing."""
    calls: list[dict[str, Any]] = []

    def hf_hub_download(repo_id: str, filename: str, *, local_files_only: bool = False, **options: Any) -> str:
        if local_files_only:
            if not cached:
                raise errors.LocalEntryNotFoundError("not in the cache")
            return cached
        calls.append({"repo_id": repo_id, "filename": filename, **options})
        return answer()

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", lambda _url: answer())
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hf_hub_download)
    return calls


def refusal(kind: type[Exception], status: int = 404) -> Exception:
    """The real exception class, made without a network."""
    if issubclass(kind, errors.HfHubHTTPError):
        response = type("Response", (), {"status_code": status, "headers": {}, "request": None, "text": ""})()
        error = kind.__new__(kind)
        Exception.__init__(error, "401 Client Error.\n\nCannot access https://huggingface.co/api/...")
        error.response = response
        return error
    return kind("An error happened.\nTraceback follows")


def raising(error: Exception) -> Callable[..., str]:
    def answer() -> str:
        raise error

    return answer


def test_a_hub_id_is_read_and_its_commit_recorded(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = model_folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    calls = from_hub(monkeypatch, lambda: str(snapshot / "config.json"))
    architecture = load_model("zzz-org/qqq-name", revision="v2")
    assert (architecture.name, architecture.revision, architecture.num_params) == ("zzz-org/qqq-name", COMMIT, NUM_PARAMS)
    assert architecture.source == "https://huggingface.co/zzz-org/qqq-name"
    assert calls == [{"repo_id": "zzz-org/qqq-name", "filename": "config.json", "revision": "v2"}]  # no token: the library's own


def test_with_a_revision_the_hub_is_asked_even_for_a_catalogue_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from_hub(monkeypatch, raising(refusal(errors.RevisionNotFoundError)))
    with pytest.raises(HubUnavailable, match="has no revision 'v9'"):
        load_model("openai-community/gpt2", revision="v9")


def test_without_a_network_the_cached_file_serves(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = from_hub(monkeypatch, raising(ConnectionError()), cached=str(model_folder / "config.json"))
    assert load_model("zzz-org/qqq-name").num_params == NUM_PARAMS
    assert calls == []  # no call that would retry for half a minute


class ConnectError(type("TransportError", (Exception,), {})):  # type: ignore[misc]
    """As httpx has it, under whatever name huggingface_hub imports httpx."""


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (refusal(errors.GatedRepoError, 403), "is gated: accept its licence"),
        (refusal(errors.RepositoryNotFoundError, 401), "the Hub has no model 'zzz-org/qqq-name', or it is private"),
        (refusal(errors.DisabledRepoError, 403), "the Hub has disabled"),
        (refusal(errors.RevisionNotFoundError), "has no revision"),
        (refusal(errors.RemoteEntryNotFoundError), "has no config.json"),
        (refusal(errors.LocalEntryNotFoundError), "the Hub cannot be reached"),
        (ConnectError("no route"), "the Hub cannot be reached"),
        (refusal(errors.OfflineModeIsEnabled), "HF_HUB_OFFLINE is set"),
        (refusal(errors.HfHubHTTPError, 401), "refuses the token in use for 'zzz-org/qqq-name' (401)"),
        (refusal(errors.HfHubHTTPError, 503), "(HTTP 503)"),
        (refusal(errors.HFValidationError), "is not a valid Hub id"),
        (ConnectionError("reset"), "the Hub cannot be reached"),
        (TimeoutError(), "the Hub cannot be reached"),
        (OSError(28, "No space left on device"), "(OSError)"),
        (RuntimeError("odd"), "(RuntimeError)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_each_refusal_of_the_hub_is_its_own_sentence(error: Exception, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from_hub(monkeypatch, raising(error))
    with pytest.raises(HubUnavailable) as caught:
        load_model("zzz-org/qqq-name")
    assert sentence in one_sentence(caught.value)
    assert "zzz-org/qqq-name" in str(caught.value)


def test_a_mistyped_id_is_told_both_that_the_hub_has_none_and_what_the_catalogue_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from_hub(monkeypatch, raising(refusal(errors.RepositoryNotFoundError, 401)))
    with pytest.raises(HubUnavailable) as caught:
        load_model("meta-llama/Llama-2-7b-hff")
    assert "the Hub has no model 'meta-llama/Llama-2-7b-hff'" in one_sentence(caught.value)
    assert "the catalogue has 'meta-llama/Llama-2-7b-hf'" in str(caught.value)


def test_a_config_from_the_hub_that_is_wrong_names_its_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "hidden_size": "wide"}), encoding="utf-8")
    from_hub(monkeypatch, lambda: str(tmp_path / "config.json"))
    with pytest.raises(InvalidJob, match="hidden_size is 'wide'"):
        load_model("zzz-org/qqq-name")


def test_bytes_from_the_hub_that_are_no_text_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xff")
    from_hub(monkeypatch, lambda: str(tmp_path / "config.json"))
    with pytest.raises(HubUnavailable, match="UnicodeDecodeError"):
        load_model("zzz-org/qqq-name")
