"""Prices of today, through gpuhunt, when a user asks for them: a cache of the user beside the snapshot that ships.

gpuhunt (MPL-2.0, an extra) reads the price catalogues that dstack publishes daily, and asks a few marketplaces themselves.
Nothing is fetched by importing, planning or reading; only `refresh_prices` does.
"""

import logging
import math
import socket
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.error import HTTPError

from planner.catalogues import find_gpu, load_gpus, load_offers, load_providers, read_offers
from planner.catalogues.offers import offers_csv
from planner.errors import BadRow, PlannerError, UnknownName
from planner.files import write_whole
from planner.hardware import MOST_USD_PER_GPU_HOUR, Gpu, Offer, Tier
from planner.units import GiB

__all__ = ["REFRESHABLE", "CurrentOffers", "Refresh", "cache_path", "current_offers", "refresh_prices"]

# Our id of a provider and gpuhunt's. Left out: seeweb, whose prices gpuhunt passes on in EUR; crusoe, whose prices are
# written into gpuhunt's code; providers that providers.csv does not have.
_PUBLISHED = {
    "aws": "aws", "azure": "azure", "gcp": "gcp", "lambda": "lambdalabs", "nebius": "nebius", "oci": "oci", "runpod": "runpod",
    "verda": "verda",
}  # fmt: skip
_ASKED = {  # live, by a class of gpuhunt.providers.<module>
    "jarvislabs": ("jarvislabs", "JarvisLabsProvider"), "lium": ("lium", "LiumProvider"), "vast": ("vastai", "VastAIProvider"),
}  # fmt: skip
_MACHINES_OF_HOSTS = ("lium", "vast")  # an item is one machine of one host, its name a number
REFRESHABLE = (*_PUBLISHED, *_ASKED)

_WAIT_S = 30.0  # for an answer, where gpuhunt itself would wait for ever

# gpuhunt's names of cards that `find_gpu` does not know.
_NAMES = {
    "A4000": "rtx-a4000", "A4500": "rtx-a4500", "A5000": "rtx-a5000", "A6000": "rtx-a6000", "RTX6000": "rtx-6000-turing",
    "RTXPRO6000S": "rtx-pro-6000-se", "RTXPRO6000WS": "rtx-pro-6000-ws",
}  # fmt: skip
# Cards that share gpuhunt's name and size (GiB). The form is read from the name of the machine, or is the provider's only one.
_FORMS = {
    "A100": {
        40: {"sxm": "a100-sxm4-40", "pcie": "a100-pcie-40"},
        80: {"sxm": "a100-sxm4-80", "pcie": "a100-pcie-80"},
    },
    "H100": {80: {"sxm": "h100-sxm5-80", "pcie": "h100-pcie-80"}},
    "V100": {
        16: {"sxm": "v100-sxm2-16", "pcie": "v100-pcie-16"},
        32: {"sxm": "v100-sxm2-32", "pcie": "v100-pcie-32"},
    },
    "RTXPRO6000": {96: {"server": "rtx-pro-6000-se", "workstation": "rtx-pro-6000-ws"}},
}
# Words in names of machines: `gpu_8x_a100_80gb_sxm4`, `NVIDIA H100 80GB HBM3`, `Standard_ND96isr_H100_v5`.
_WORDS = {
    "sxm": "sxm",
    "hbm3": "sxm",
    "standard_nd": "sxm",
    "pcie": "pcie",
    "standard_nc": "pcie",
    "server": "server",
    "workstation": "workstation",
}
_ONE_FORM = ("aws", "gcp", "jarvislabs", "nebius", "oci", "verda")  # A100, H100 and V100 as SXM, RTX PRO 6000 as server edition


@dataclass(frozen=True)
class Refresh:
    """What one refresh brought: rows per provider, and what did not come or was left out, each with its reason."""

    path: Path  # the cache
    offers: Mapping[str, int]  # rows by provider id, of those that answered
    problems: Mapping[str, PlannerError]  # one sentence by provider id, of those that did not
    unknown_cards: Mapping[str, int]  # items left out by the card's name: not in gpus.csv, or of a form that is not stated
    bad_prices: int  # items left out: zero, negative, absurd or no number
    bad_rows: Mapping[str, int]  # rows of a published catalogue that gpuhunt could not read, by provider id


class CurrentOffers(NamedTuple):
    """The offers to plan with: those that ship, and where they were refreshed, those of the cache."""

    offers: tuple[Offer, ...]
    problem: PlannerError | None  # why the cache was not used, where there is one


def cache_path() -> Path:
    """The file of refreshed offers in the user's cache folder, in the columns of data/offers.csv."""
    from platformdirs import user_cache_path

    return user_cache_path("finetune-planner", appauthor=False) / "offers.csv"


def current_offers(path: Path | None = None) -> CurrentOffers:
    """Refreshed offers over shipped ones; each keeps its own date. Touches no network and raises nothing.

    Of a provider's machines with the same card, number of cards and tier, the refreshed ones count, unless those that
    ship are newer.
    """
    path = path or cache_path()
    try:
        state = path.stat()
        refreshed = _cached(path, state.st_mtime_ns, state.st_size)
    except FileNotFoundError:
        return CurrentOffers(load_offers(), None)
    except (BadRow, OSError, UnicodeDecodeError) as error:
        return CurrentOffers(
            load_offers(),
            PlannerError(
                "the refreshed prices in {path!r} cannot be read ({problem}); those that ship are used, refresh to replace them",
                path=str(path), problem=_reason(error),
            ),
        )  # fmt: skip
    return CurrentOffers(_merged(load_offers(), refreshed), None)


@cache
def _cached(path: Path, _changed_ns: int, _size: int) -> tuple[Offer, ...]:
    with open(path, encoding="utf-8", newline="") as file:
        return tuple(read_offers(file))


def _merged(shipped: tuple[Offer, ...], refreshed: tuple[Offer, ...]) -> tuple[Offer, ...]:
    newest: dict[tuple[object, ...], tuple[date, int]] = {}
    for rank, offers in enumerate((shipped, refreshed)):
        for offer in offers:
            found = (offer.price_date or date.min, rank)
            newest[_group(offer)] = max(newest.get(_group(offer), found), found)
    return tuple(
        offer for rank, offers in enumerate((shipped, refreshed)) for offer in offers if newest[_group(offer)][1] == rank
    )


def _group(offer: Offer) -> tuple[object, ...]:
    return offer.provider_id, offer.tier, offer.gpu_id or offer.gpu_name, offer.gpu_count


def refresh_prices(providers: Iterable[str] = REFRESHABLE, *, path: Path | None = None, today: date | None = None) -> Refresh:
    """Ask for the prices of `providers` (ids of providers.csv) and keep them in the cache, whole or not at all.

    A provider that does not answer leaves its rows of the last refresh as they were. Where none answers, nothing is written.
    Raises PlannerError: a provider that cannot be asked, gpuhunt not installed, or a cache that cannot be written.
    """
    wanted = tuple(dict.fromkeys(providers))
    for name in wanted:
        if name not in load_providers():
            raise UnknownName("provider", name, load_providers())
        if name not in REFRESHABLE:
            raise PlannerError(
                "prices of {name!r} cannot be refreshed; these can: {known}", name=name, known=", ".join(REFRESHABLE)
            )
    try:
        import gpuhunt
        from gpuhunt.version import __version__ as version
    except ImportError as error:
        raise PlannerError("prices are refreshed with gpuhunt: pip install 'finetune-planner[prices]'") from error
    path, day = path or cache_path(), today or datetime.now(UTC).date()
    problems: dict[str, PlannerError] = {}
    found: dict[str, tuple[Offer, ...]] = {}
    unknown_cards: Counter[str] = Counter()
    bad_prices = 0
    with _listening() as log:
        catalogue = gpuhunt.Catalog(balance_resources=False, auto_reload=False)
        if set(wanted) & _PUBLISHED.keys():
            with suppress(gpuhunt.GPUHuntError):  # none of them came: the log has the reason of each
                catalogue.load()
        for name in wanted:
            try:
                items, of, dated = _items(catalogue, name, day)
                cards = [(item, _card(name, item)) for item in items]
                known = [(item, card) for item, card in cards if card]
                sane = [(item, card) for item, card in known if _sane(item)]
                offers = tuple(_offers(name, sane, dated, f"gpuhunt {version}, {of}"))
                if not offers:
                    raise LookupError("it lists no machine with a known card and price")
                found[name] = tuple(read_offers(StringIO(offers_csv(offers), newline="")))  # what is written can be read back
            except Exception as error:  # noqa: BLE001  whatever one provider's code raises, the others are asked
                reason = log.reasons.get(_PUBLISHED.get(name, "")) or _reason(error)
                problems[name] = PlannerError(
                    "no prices came from {provider} ({problem})", provider=load_providers()[name].name, problem=reason
                )
                continue
            bad_prices += len(known) - len(sane)
            unknown_cards.update(f"{item.gpu_name} {item.gpu_memory or 0:g} GB" for item, card in cards if not card)
    if found:
        _write(path, found)
    bad_rows = {name: log.bad_rows[theirs] for name, theirs in _PUBLISHED.items() if name in found and log.bad_rows[theirs]}
    return Refresh(
        path=path,
        offers={name: len(offers) for name, offers in found.items()},
        problems=problems,
        unknown_cards=dict(unknown_cards.most_common()),
        bad_prices=bad_prices,
        bad_rows=bad_rows,
    )


def _items(catalogue: Any, name: str, day: date) -> tuple[list[Any], str, date]:
    """gpuhunt's items of one provider that have cards, where they are from, and the date of their prices."""
    if name in _PUBLISHED:
        published = catalogue.catalog.get(_PUBLISHED[name])
        if published is None:
            raise LookupError("its catalogue did not load")
        items = catalogue.query(provider=_PUBLISHED[name], min_gpu_count=1)
        try:
            dated = date.fromisoformat(published.version[:8])  # 20261201-7
        except ValueError:
            dated = date.max
        return items, f"published catalogue {published.version}", min(dated, day)
    module, kind = _ASKED[name]
    items = getattr(import_module(f"gpuhunt.providers.{module}"), kind).from_env().get(balance_resources=False)
    return [item for item in items if item.gpu_count], "asked itself", day


def _card(provider_id: str, item: Any) -> Gpu | None:
    """The card of gpus.csv that an item has; None for a fraction of one, an unknown one, or one whose form is open."""
    machine, memory_gib = item.instance_name.lower(), item.gpu_memory or 0
    if sizes := _FORMS.get(item.gpu_name):
        forms = next((forms for size, forms in sizes.items() if _same_size(size, memory_gib)), {})
        words = {_WORDS[word] for word in _WORDS if word in machine} or ({"sxm", "server"} if provider_id in _ONE_FORM else set())
        ids = [forms[word] for word in words if word in forms]
        return load_gpus()[ids[0]] if len(ids) == 1 and "max-q" not in machine else None
    card = _named(item.gpu_name or "")
    return card if card and _same_size(card.memory_bytes / GiB, memory_gib) else None


@cache
def _named(gpu_name: str) -> Gpu | None:
    try:
        return find_gpu(_NAMES.get(gpu_name, gpu_name))
    except UnknownName:
        return None


def _same_size(ours_gib: float, theirs_gib: float) -> bool:
    """Not so: RTX 4060 Ti 8 GB and 16 GB, RTX 3080 10 GB and 12 GB, a slice of an A10. So: T4 14.6 GiB and "16 GB"."""
    return math.isclose(ours_gib, theirs_gib, rel_tol=0.1)


def _sane(item: Any) -> bool:
    return bool(0 < item.price <= MOST_USD_PER_GPU_HOUR * item.gpu_count)  # nan is not


def _offers(provider_id: str, items: list[tuple[Any, Gpu]], dated: date, source: str) -> Iterator[Offer]:
    """Items of the same machine in several places, on demand and as spot, as one offer each."""
    machines: dict[tuple[str, Tier, str, int], list[Any]] = defaultdict(list)
    for item, card in items:
        name = f"{item.gpu_count}x {card.label}" if provider_id in _MACHINES_OF_HOSTS else item.instance_name
        machines[name, _tier(provider_id, item), card.id, item.gpu_count].append(item)
    for (name, tier, gpu_id, gpu_count), same in machines.items():
        prices = {spot: [round(item.price, 6) for item in same if item.spot == spot] for spot in (False, True)}
        places = {item.location for item in same}
        disks = [item.disk_size for item in same]
        yield Offer(
            provider_id=provider_id,
            instance_type=name,
            tier=tier,
            gpu_id=gpu_id,
            gpu_name=f"{same[0].gpu_name} {same[0].gpu_memory:g} GB",
            gpu_count=gpu_count,
            vcpus=min(item.cpu for item in same) or None,
            # GiB, whatever gpuhunt's field says, but for Lambda, whose GiB it multiplies by 1.074.
            host_memory_bytes=round(min(item.memory for item in same) * (GiB / 1.074 if provider_id == "lambda" else GiB))
            or None,
            disk_bytes=round(min(disks) * 1e9) or None if all(disks) else None,
            usd_per_hour=min(prices[False], default=None),
            usd_per_hour_median=median(prices[False]) if prices[False] else None,
            spot_usd_per_hour=min(prices[True], default=None),
            spot_usd_per_hour_median=median(prices[True]) if prices[True] else None,
            regions=len(places),
            region=places.pop() if len(places) == 1 else "",
            price_date=dated,
            note=f"the least of {len(same)} machines of hosts" if provider_id in _MACHINES_OF_HOSTS else "",
            source=source,
        )


def _tier(provider_id: str, item: Any) -> Tier:
    if provider_id != "runpod":
        return "on-demand"
    if "runpod-cluster" in item.flags:
        return "cluster"
    return "community cloud" if len(item.location) == 2 else "secure cloud"  # a country, or a data centre such as EU-RO-1


def _write(path: Path, found: Mapping[str, tuple[Offer, ...]]) -> None:
    """The new rows, and those that the cache has of other providers."""
    old: tuple[Offer, ...] = ()
    with suppress(BadRow, OSError, UnicodeDecodeError), open(path, encoding="utf-8", newline="") as file:
        old = tuple(read_offers(file))
    kept = [offer for offer in old if offer.provider_id not in found]
    with suppress(OSError):  # `write_whole` says so in a sentence
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, offers_csv([*kept, *(offer for offers in found.values() for offer in offers)]).encode())


class _Log(logging.Handler):
    """What gpuhunt only logs: why the catalogue of a provider did not come, and rows that it skipped."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reasons: dict[str, str] = {}
        self.bad_rows: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and record.args and isinstance(theirs := record.args[0], str):
            if record.exc_info and (error := record.exc_info[1]):
                self.reasons[theirs] = _reason(error)
                if isinstance(error, HTTPError):
                    error.close()  # it holds the connection
            elif "malformed row" in record.msg:
                self.bad_rows[theirs] += 1


@contextmanager
def _listening() -> Iterator[_Log]:
    """gpuhunt's log to us instead of the screen, and an end to waiting for a network that swallows packets."""
    logger, log, waited = logging.getLogger("gpuhunt"), _Log(), socket.getdefaulttimeout()
    logger.addHandler(log)
    logger.propagate = False
    socket.setdefaulttimeout(_WAIT_S)
    try:
        yield log
    finally:
        socket.setdefaulttimeout(waited)
        logger.propagate = True
        logger.removeHandler(log)


def _reason(error: BaseException) -> str:
    text = str(getattr(error, "reason", None) or error) or type(error).__name__
    return " ".join(text.split())[:200]
