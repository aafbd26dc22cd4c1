"""A plan in a link and back: versioned JSON, compressed, in letters that a URL takes. No pilot record, no data, no secrets."""

import binascii
import json
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from urllib.parse import parse_qs

from planner.errors import PlannerError
from planner.planfile import PlanFile, plan_from_json, plan_values

__all__ = ["link_of", "plan_of_link", "plan_of_query"]

_MOST_CHARACTERS = 16_000  # what servers and browsers let pass
_MOST_BYTES = 1_000_000  # of the JSON inside: a link cannot make a server hold more


def link_of(plan: PlanFile) -> str:
    """What stands behind `?plan=`: the plan without its pilot record. Raises PlannerError where it is too long for a link."""
    values = plan_values(plan.changed(pilot=None))
    packed = zlib.compress(json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode(), 9)
    link = urlsafe_b64encode(packed).decode().rstrip("=")
    if len(link) > _MOST_CHARACTERS:
        raise PlannerError(
            "the plan's texts are too long for a link ({length:,} characters); save it as a file", length=len(link)
        )
    return link


def plan_of_link(link: str) -> PlanFile:
    """The plan of `link_of`, checked like any input. Raises PlannerError, one sentence."""
    damaged = PlannerError("the link holds no plan, or was cut off; ask for it again, or for the plan file")
    if len(link) > _MOST_CHARACTERS:
        raise damaged
    try:
        packed = urlsafe_b64decode(link + "=" * (-len(link) % 4))
        reader = zlib.decompressobj()
        text = reader.decompress(packed, _MOST_BYTES)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise damaged from error
    if not reader.eof:
        raise damaged
    return plan_from_json(text, name="link")


def plan_of_query(query: str) -> PlanFile | None:
    """The plan in a URL's query string (`?plan=...`), as Voila hands it to a notebook; None where it names none."""
    link = parse_qs(query.lstrip("?"), max_num_fields=20).get("plan", [""])[0] if len(query) <= 2 * _MOST_CHARACTERS else "?"
    return plan_of_link(link) if link else None
