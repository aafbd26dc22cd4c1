"""Secrets that a text must not hold: plans, records, exports, logs and links are shared, a token or key in one is given away."""

import re
from collections.abc import Iterator
from typing import Any

from planner.errors import InvalidJob

__all__ = ["refuse_secrets", "secret_in", "without_secrets"]

# What issuers publish of the form of their own, so that scanners find them. Source: the secret types of GitHub's secret scanning.
_FORMS = {
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{20,}|\bapi_org_[A-Za-z0-9]{20,}",
    "a GitHub token": r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}",
    "an API key": r"\b(?:sk|rk|pk)[-_](?:[A-Za-z0-9]+[-_])*[A-Za-z0-9]{20,}|\bAIza[\w-]{30,}|\brpa_[A-Z0-9]{20,}|\bdapi[0-9a-f]{30,}",
    "an AWS key": r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    "a Slack token": r"\bxox[abeoprs]-[\w-]{10,}",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY",
    "a JSON web token": r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.",
    "a URL with a password": r"\b[a-z][a-z0-9+.-]*://[^\s/:@]*:[^\s/@]+@",
    "a signed URL": r"[?&](?:X-Amz-Signature|X-Goog-Signature|sig|sv)=[\w%/+-]{16,}",
    "a password": r"(?i)\b(?:password|passwd|parola|şifre|secret|token|api[-_ ]?key|bearer|wandb[-_]api[-_]key)\b\s*[:=]?\s*"
    r"(?=[^\s]*[0-9])[A-Za-z0-9+/_.-]{16,}",
}
_KINDS = {kind: re.compile(form) for kind, form in _FORMS.items()}


def secret_in(text: str) -> str | None:
    """What kind of secret the text seems to hold; None where none is seen."""
    return next((kind for kind, form in _KINDS.items() if form.search(text)), None)


def without_secrets(text: str) -> str:
    """The text with what seems to be a secret taken out: for messages of other libraries, which may quote what they were given."""
    for form in _KINDS.values():
        text = form.sub("[secret]", text)
    return text


def refuse_secrets(values: Any) -> None:
    """Raise InvalidJob, which names the field and not the secret, where any text among nested values seems to hold one."""
    for field, text in _texts(values, ""):
        if kind := secret_in(text):
            raise InvalidJob(
                "{name} seems to hold {kind}; leave it out: plans, records and links are shared; set it in the environment of the machine",
                field=field, name=field or "text", kind=kind,
            )  # fmt: skip


def _texts(values: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(values, str):
        yield at, values
    elif isinstance(values, dict):
        for key, value in values.items():
            yield from _texts(str(key), at)
            yield from _texts(value, f"{at}.{key}" if at else str(key))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _texts(value, at)
