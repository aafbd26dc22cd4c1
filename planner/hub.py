"""A model by name, file, folder, pasted config.json or Hugging Face Hub id -> Architecture. No code of a model ever runs."""

import re
from pathlib import Path

from planner.architecture import Architecture
from planner.catalogues import find_model, known_models
from planner.errors import HubUnavailable, InvalidJob, UnknownName, near_names
from planner.families import architecture_from_config, parse_config

__all__ = ["HUB_ID", "hub_file", "load_model"]

# A config.json has a few kB; the largest that were seen have some tens of kB.
_MAX_CONFIG_BYTES = 1_000_000
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# By name, as huggingface_hub changes its HTTP library (requests, httpx, httpx2) between versions.
_NO_NETWORK = {"TransportError", "ConnectionError", "TimeoutError", "Timeout"}
_COMMIT = re.compile(r"[0-9a-f]{40}")


def load_model(text: str, *, revision: str | None = None, allow_files: bool = True, allow_hub: bool = True) -> Architecture:
    """The architecture that `text` names: a pasted config.json, a path, a catalogue name, or a Hub id, in that order.

    `revision` is a branch, tag or commit of the Hub; a catalogue row is not used when one is asked for.
    `allow_files` and `allow_hub` switch reading files and the network off, for an app that strangers use.
    Raises InvalidJob, UnknownName or HubUnavailable: each one sentence.
    """
    text = text.strip()
    if not text:
        raise InvalidJob("no model is named; give a catalogue name, a config.json or a Hub id")
    if text.startswith(("{", "[")):
        return _from_text(text, source="pasted config.json")
    if allow_files and (path := _existing_path(text)):
        return _from_path(path)
    try:
        if not revision:
            return find_model(text)
        raise UnknownName("model", text, known_models())
    except UnknownName:
        if allow_files and (text.startswith((".", "/", "~")) or text.endswith(".json")):
            raise InvalidJob("there is no file or folder {path!r}", path=text) from None
        if not HUB_ID.fullmatch(text):
            raise
    try:
        if allow_hub:
            return _from_hub(text, revision)
        raise HubUnavailable(
            "{name!r} is not in the catalogue, and the Hub is not asked here; paste the model's config.json", name=text
        )
    except HubUnavailable as error:
        if near := near_names(text, known_models()):
            raise _NearMiss(error, near) from error
        raise


class _NearMiss(HubUnavailable):
    """An id that the Hub does not give, and that is near names of the catalogue: both are said."""

    def __init__(self, problem: HubUnavailable, near: list[str]) -> None:
        self.problem, self.suggestions = problem, near
        super().__init__("the catalogue has {near}", near=", ".join(map(repr, near)))

    def text(self, language: str) -> str:
        return f"{self.problem.text(language)}; {super().text(language)}"


def _from_text(text: str, *, source: str, name: str = "", revision: str = "") -> Architecture:
    if len(text) > _MAX_CONFIG_BYTES:
        raise InvalidJob("this text has {length:,} characters; a config.json has a few thousand", length=len(text))
    return architecture_from_config(parse_config(text), name=name[:200], source=source, revision=revision)


def _existing_path(text: str) -> Path | None:
    try:
        path = Path(text).expanduser()
        return path if path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, a null byte, or an unknown user's home
        return None


def _from_path(path: Path) -> Architecture:
    shown = str(path)
    try:
        file = path / "config.json" if path.is_dir() else path
        if path.is_dir() and not file.exists():
            raise InvalidJob(
                "the folder {path!r} has no config.json; give the folder of a saved model, or the file itself", path=shown
            )
        if not file.is_file():
            raise InvalidJob("{path!r} is not a file; give a model's config.json or its folder", path=shown)
        if file.stat().st_size > _MAX_CONFIG_BYTES:
            raise InvalidJob("{path!r} has {size:,} bytes, so it is no config.json", path=shown, size=file.stat().st_size)
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidJob("{path!r} is not UTF-8 text; give a model's config.json or its folder", path=shown) from error
    except OSError as error:
        raise InvalidJob("{path!r} cannot be read ({problem})", path=shown, problem=error.strerror or str(error)) from error
    return _from_text(text, name=file.resolve().parent.name if file.name == "config.json" else file.stem, source=str(file))


def _from_hub(hub_id: str, revision: str | None) -> Architecture:
    try:
        path = hub_file(hub_id, "config.json", revision)
        text = path.read_bytes()[: _MAX_CONFIG_BYTES + 1].decode()
    except ImportError as error:
        raise HubUnavailable("the Hub is read with huggingface_hub: pip install huggingface_hub") from error
    except Exception as error:
        raise _why(error, hub_id, revision) from error
    commit = path.parent.name if _COMMIT.fullmatch(path.parent.name) else revision or ""
    return _from_text(text, name=hub_id, source=f"https://huggingface.co/{hub_id}", revision=commit)


def hub_file(hub_id: str, name: str, revision: str | None = None, *, allow_network: bool = True) -> Path:
    """A file in the Hub's cache. The Hub is asked once first: hf_hub_download alone retries for 25 s without a network.

    Raises what huggingface_hub raises.
    """
    import huggingface_hub

    def download(*, cached: bool = False) -> Path:
        return Path(huggingface_hub.hf_hub_download(hub_id, name, revision=revision, local_files_only=cached))

    if not allow_network:
        return download(cached=True)
    try:
        huggingface_hub.get_hf_file_metadata(huggingface_hub.hf_hub_url(hub_id, name, revision=revision))
    except Exception as error:  # noqa: BLE001  each kind gets its sentence below
        try:
            return download(cached=True)
        except huggingface_hub.errors.LocalEntryNotFoundError:
            raise error from None
    return download()


def _why(error: Exception, hub_id: str, revision: str | None) -> HubUnavailable:
    """One sentence for what huggingface_hub raised. The order counts: a gated repository is also a missing one there."""
    from huggingface_hub import errors

    status = getattr(getattr(error, "response", None), "status_code", None)
    page = f"https://huggingface.co/{hub_id}"
    if isinstance(error, errors.GatedRepoError):
        return HubUnavailable(
            "{name!r} is gated: accept its licence at {page}, then log in with `hf auth login` or set HF_TOKEN",
            name=hub_id,
            page=page,
        )
    if isinstance(error, errors.DisabledRepoError):
        return HubUnavailable("the Hub has disabled {name!r}", name=hub_id)
    if isinstance(error, errors.RepositoryNotFoundError):
        return HubUnavailable("the Hub has no model {name!r}, or it is private and the token in use may not read it", name=hub_id)
    if isinstance(error, errors.RevisionNotFoundError):
        return HubUnavailable(
            "{name!r} has no revision {revision!r}; see {page}/tree/main", name=hub_id, revision=revision or "main", page=page
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        return HubUnavailable(
            "HF_HUB_OFFLINE is set, and config.json of {name!r} was not downloaded before; paste it", name=hub_id
        )
    if isinstance(error, errors.LocalEntryNotFoundError) or _NO_NETWORK & {base.__name__ for base in type(error).__mro__}:
        return HubUnavailable(
            "the Hub cannot be reached, and config.json of {name!r} was not downloaded before; paste it, or try again later",
            name=hub_id,
        )
    if isinstance(error, errors.EntryNotFoundError):
        return HubUnavailable("{name!r} has no config.json, so it is no model that transformers can load", name=hub_id)
    if status in (401, 403):
        return HubUnavailable(
            "the Hub refuses the token in use for {name!r} ({status}); log in again with `hf auth login`, or unset HF_TOKEN",
            name=hub_id, status=status,
        )  # fmt: skip
    if isinstance(error, errors.HFValidationError):
        return HubUnavailable("{name!r} is not a valid Hub id", name=hub_id)
    reason = type(error).__name__ if status is None else f"HTTP {status}"
    return HubUnavailable(
        "the Hub gave no config.json for {name!r} ({reason}); try again later, or paste it", name=hub_id, reason=reason
    )
