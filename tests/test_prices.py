"""Prices of today: gpuhunt reads a catalogue that the test serves on this machine; nothing reaches the internet."""

import csv
import io
import logging
import re
import socket
import sys
import threading
import zipfile
from collections.abc import Iterator
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from planner import prices
from planner.catalogues import load_gpus, load_offers
from planner.errors import PlannerError, UnknownName
from planner.hardware import Offer
from planner.prices import REFRESHABLE, cache_path, current_offers, refresh_prices
from planner.units import GiB

TODAY = date(2026, 12, 5)
COLUMNS = (
    "instance_name", "location", "price", "cpu", "memory", "gpu_count", "gpu_name", "gpu_memory", "spot", "disk_size",
    "gpu_vendor", "flags", "cpu_arch", "provider_data",
)  # fmt: skip


def row(
    name: str, location: str, price: Any, gpu: str, memory: float, *, count: int = 1, spot: bool = False, flags: str = ""
) -> tuple:
    return (name, location, price, 8, 64.0, count, gpu, memory, spot, "", "nvidia", flags, "x86", "{}")


ROWS = {
    "aws": [
        row("p5.48xlarge", "us-east-1", 50.0, "H100", 80, count=8), row("p5.48xlarge", "us-west-2", 54.0, "H100", 80, count=8),
        row("p5.48xlarge", "eu-west-1", 70.0, "H100", 80, count=8), row("p5.48xlarge", "us-east-1", 20.0, "H100", 80, count=8, spot=True),
        row("g4dn.xlarge", "us-east-1", 0.5, "T4", 16), row("g9.xlarge", "us-east-1", 0.5, "X900", 99),
        row("g4dn.2xlarge", "us-east-1", 0, "T4", 16), row("g4dn.4xlarge", "us-east-1", -1, "T4", 16),
        row("g4dn.8xlarge", "us-east-1", 10_000.5, "T4", 16), row("g4dn.16xlarge", "us-east-1", "nan", "T4", 16),
        ("m5.large", "us-east-1", 0.1, 2, 8.0, 0, "", "", False, "", "", "", "x86", "{}"),
        ("broken", "us-east-1", "cheap", 2, 8.0, 1, "T4", 16, False, "", "nvidia", "", "x86", "{}"),
    ],
    "runpod": [
        row("NVIDIA H100 80GB HBM3", "EU-RO-1", 3.5, "H100", 80), row("NVIDIA H100 80GB HBM3", "CA", 2.5, "H100", 80),
        row("NVIDIA H100 80GB HBM3", "EU-RO-1", 32.0, "H100", 80, count=8, flags="runpod-cluster"),
    ],
}  # fmt: skip


def catalogue(provider: str, rows: list[tuple]) -> bytes:
    text, file = io.StringIO(), io.BytesIO()
    csv.writer(text).writerows([COLUMNS, *rows])
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{provider}.csv", text.getvalue())
    return file.getvalue()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """Paths and what a server on loopback answers there; all else is 404. gpuhunt is pointed at it."""
    pages = {f"/v3/{name}/version": b"20261201-7" for name in ROWS}
    pages |= {f"/v3/{name}/20261201-7/catalog.zip": catalogue(name, rows) for name, rows in ROWS.items()}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = pages.get(self.path)
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        request_queue_size = 32  # gpuhunt opens eight connections at once; a full queue would cost a second

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("GPUHUNT_CATALOG_URL", f"http://127.0.0.1:{server.server_port}/v3")
    monkeypatch.delenv("GPUHUNT_CATALOG_DIR", raising=False)
    yield pages
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "offers.csv"


def of(offers: tuple[Offer, ...], provider: str) -> list[Offer]:
    return [offer for offer in offers if offer.provider_id == provider]


def test_places_and_spot_of_one_machine_become_one_offer(served: dict[str, bytes], path: Path) -> None:
    refresh_prices(["aws"], path=path, today=TODAY)
    (offer,) = [offer for offer in current_offers(path).offers if offer.instance_type == "p5.48xlarge"]
    assert (offer.usd_per_hour, offer.usd_per_hour_median, offer.spot_usd_per_hour, offer.regions) == (50, 54, 20, 3)
    assert (offer.gpu_id, offer.gpu_count, offer.vcpus, offer.host_memory_bytes) == ("h100-sxm5-80", 8, 8, 64 * GiB)
    assert (offer.price_date, offer.price_date_estimated, offer.age_days(TODAY)) == (date(2026, 12, 1), False, 4)
    assert offer.source.endswith("published catalogue 20261201-7")


def test_a_refresh_counts_what_it_left_out_and_why(served: dict[str, bytes], path: Path) -> None:
    done = refresh_prices(["aws"], path=path, today=TODAY)
    assert (dict(done.offers), dict(done.problems), done.path) == ({"aws": 2}, {}, path)
    assert done.unknown_cards == {"X900 99 GB": 1}
    assert done.bad_prices == 4  # zero, negative, absurd, not a number
    assert done.bad_rows == {"aws": 1}


def test_refreshed_offers_take_the_place_of_shipped_ones_and_the_rest_stays(served: dict[str, bytes], path: Path) -> None:
    refresh_prices(["aws", "runpod"], path=path, today=TODAY)
    offers, problem = current_offers(path)
    assert problem is None
    assert of(offers, "azure") == of(load_offers(), "azure")
    dates = {offer.instance_type: offer.price_date for offer in of(offers, "aws")}
    assert dates["p5.48xlarge"] == dates["g4dn.xlarge"] == date(2026, 12, 1)
    assert dates["p6-b200.48xlarge"] == date(2026, 7, 20), "not in the refreshed catalogue, so its old price with its old date"
    assert "g4dn.2xlarge" not in dates, "one T4 is refreshed, so shipped prices of one T4 are gone"
    h100 = {(offer.tier, offer.gpu_count): offer.usd_per_hour for offer in of(offers, "runpod") if offer.gpu_id == "h100-sxm5-80"}
    assert h100 == {("secure cloud", 1): 3.5, ("community cloud", 1): 2.5, ("cluster", 8): 32}
    assert len({offer.key for offer in offers}) == len(offers)


def test_shipped_prices_that_are_newer_win(served: dict[str, bytes], path: Path) -> None:
    served |= {"/v3/aws/version": b"20250101", "/v3/aws/20250101/catalog.zip": catalogue("aws", ROWS["aws"])}
    refresh_prices(["aws"], path=path, today=TODAY)
    assert of(current_offers(path).offers, "aws") == of(load_offers(), "aws")


def test_a_version_that_is_no_date_counts_as_today_and_none_is_in_the_future(served: dict[str, bytes], path: Path) -> None:
    for version in ("7", "20991231"):
        served |= {"/v3/aws/version": version.encode(), f"/v3/aws/{version}/catalog.zip": catalogue("aws", ROWS["aws"])}
        refresh_prices(["aws"], path=path, today=TODAY)
        assert {offer.price_date for offer in of(current_offers(path).offers, "aws")} >= {TODAY}


def test_one_provider_that_fails_is_said_and_the_others_come(
    served: dict[str, bytes], path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served["/v3/aws/20261201-7/catalog.zip"] = b"half of a zip"
    done = refresh_prices(["aws", "runpod", "gcp"], path=path, today=TODAY)
    assert dict(done.offers) == {"runpod": 3}
    assert {name: str(problem) for name, problem in done.problems.items()} == {
        "aws": "no prices came from AWS (File is not a zip file)", "gcp": "no prices came from Google Cloud (Not Found)",
    }  # fmt: skip
    assert of(current_offers(path).offers, "aws") == of(load_offers(), "aws")
    assert capsys.readouterr() == ("", ""), "the log of gpuhunt does not reach the screen"
    assert (socket.getdefaulttimeout(), logging.getLogger("gpuhunt").handlers) == (None, [])


def test_a_provider_that_fails_keeps_the_rows_of_its_last_refresh(served: dict[str, bytes], path: Path) -> None:
    refresh_prices(["aws", "runpod"], path=path, today=TODAY)
    first = current_offers(path).offers
    del served["/v3/aws/version"]
    done = refresh_prices(["aws", "runpod"], path=path, today=TODAY)
    assert (set(done.offers), set(done.problems)) == ({"runpod"}, {"aws"})
    assert set(current_offers(path).offers) == set(first)


def test_without_a_network_nothing_is_written_and_the_shipped_prices_stay(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("GPUHUNT_CATALOG_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
    done = refresh_prices(["aws", "azure"], path=path, today=TODAY)
    for name, provider in (("aws", "AWS"), ("azure", "Microsoft Azure")):
        assert re.fullmatch(rf"no prices came from {provider} \(.*[Cc]onnection refused\)", str(done.problems[name]))
    assert not done.offers
    assert not path.exists()
    assert current_offers(path) == (load_offers(), None)


def test_a_marketplace_is_asked_itself_and_its_machines_become_one_offer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuhunt.providers import lium

    item = {
        "location": "us", "cpu": 16, "memory": 50.0, "gpu_count": 1, "gpu_name": "RTX4090", "gpu_memory": 24.0, "flags": [],
        "spot": False, "disk_size": 100.0,
    }  # fmt: skip
    items = [SimpleNamespace(**item, instance_name=str(n), price=p) for n, p in enumerate([0.3, 0.5, 0.4])]
    items[1].cpu = 8
    items.append(SimpleNamespace(**{**item, "gpu_name": "H100", "gpu_memory": 80.0}, instance_name="4", price=2.0))
    monkeypatch.setattr(lium.LiumProvider, "get", lambda *_, **__: items)
    done = refresh_prices(["lium", "jarvislabs"], path=path, today=TODAY)
    assert dict(done.unknown_cards) == {"H100 80 GB": 1}, "PCIe or SXM is not said"
    assert "JL_API_KEY" in str(done.problems["jarvislabs"])
    (offer,) = [
        offer for offer in of(current_offers(path).offers, "lium") if (offer.gpu_id, offer.gpu_count) == ("rtx-4090-24", 1)
    ]
    assert (offer.instance_type, offer.usd_per_hour, offer.usd_per_hour_median, offer.vcpus) == ("1x RTX 4090", 0.3, 0.4, 8)
    assert (offer.disk_bytes, offer.price_date) == (100e9, TODAY)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "it lists no machine with a known card and price"),
        ([row("a", "b", 1.0, "X900", 99)], "it lists no machine with a known card and price"),
        (
            [row("g4dn.xlarge", "a", 0.5, "T4", 16), ("x", "a", 1, -4, 8.0, 1, "T4", 16, False, "", "nvidia", "", "x86", "{}")],
            "vcpus",
        ),
    ],
)
def test_a_catalogue_that_is_empty_or_impossible_replaces_nothing(
    served: dict[str, bytes], path: Path, rows: list[tuple], problem: str
) -> None:
    refresh_prices(["aws"], path=path, today=TODAY)
    before = path.read_bytes()
    served["/v3/aws/20261201-7/catalog.zip"] = catalogue("aws", rows)
    assert problem in str(refresh_prices(["aws"], path=path, today=TODAY).problems["aws"])
    assert path.read_bytes() == before


@pytest.mark.parametrize("problem", [KeyError("nodes"), TypeError("price is None"), ConnectionError("no route")])
def test_whatever_a_marketplace_raises_is_one_sentence(path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception) -> None:
    from gpuhunt.providers import lium

    def broken(*_: object, **__: object) -> None:
        raise problem

    monkeypatch.setattr(lium.LiumProvider, "get", broken)
    done = refresh_prices(["lium"], path=path, today=TODAY)
    assert str(done.problems["lium"]) == f"no prices came from Lium ({problem})"


@pytest.mark.parametrize(
    ("provider", "machine", "name", "memory", "card"),
    [
        ("aws", "p4d.24xlarge", "A100", 40, "a100-sxm4-40"), ("azure", "Standard_NC24ads_A100_v4", "A100", 80, "a100-pcie-80"),
        ("azure", "Standard_ND96amsr_A100_v4", "A100", 80, "a100-sxm4-80"), ("azure", "Standard_NC40ads_H100_v5", "H100NVL", 94, "h100-nvl-94"),
        ("lambda", "gpu_1x_h100_pcie", "H100", 80, "h100-pcie-80"), ("lambda", "gpu_8x_a100_80gb_sxm4", "A100", 80, "a100-sxm4-80"),
        ("lambda", "gpu_1x_a100", "A100", 40, None), ("runpod", "NVIDIA A100 80GB PCIe", "A100", 80, "a100-pcie-80"),
        ("runpod", "NVIDIA H100 80GB HBM3", "H100", 80, "h100-sxm5-80"), ("runpod", "NVIDIA RTX A6000", "A6000", 48, "rtx-a6000"),
        ("runpod", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTXPRO6000", 96, "rtx-pro-6000-se"),
        ("runpod", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTXPRO6000", 95, "rtx-pro-6000-ws"),
        ("runpod", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTXPRO6000", 96, None),
        ("gcp", "g4-standard-12", "RTXPRO6000", 24, None), ("gcp", "g4-standard-48", "RTXPRO6000", 96, "rtx-pro-6000-se"),
        ("vast", "123", "RTX4060Ti", 8, None), ("vast", "123", "RTX4060Ti", 16, "rtx-4060-ti-16"), ("vast", "1", "RTX3080", 12, None),
        ("aws", "g4dn.xlarge", "T4", 16, "t4"), ("aws", "g5.xlarge", "A10G", 24, "a10g"), ("azure", "Standard_NV6ads_A10_v5", "A10", 4, None),
        ("oci", "VM.GPU2.1", "P100", 16, None), ("aws", "p6-b300.48xlarge", "B300", 270, "b300-sxm"), ("vast", "1", None, None, None),
        ("nebius", "gpu-h200-sxm 8gpu-128vcpu-1600gb", "H200", 141, "h200-sxm-141"), ("verda", "1V100.6V", "V100", 16, "v100-sxm2-16"),
    ],
)  # fmt: skip
def test_the_card_is_found_by_name_size_and_the_name_of_the_machine(
    provider: str, machine: str, name: str, memory: float, card: str | None
) -> None:
    found = prices._card(provider, SimpleNamespace(instance_name=machine, gpu_name=name, gpu_memory=memory))
    assert (found.id if found else None) == card


def test_every_card_that_gpuhunt_can_name_is_ours_or_none() -> None:
    import gpuhunt

    known = {
        card.id
        for one in gpuhunt.KNOWN_ACCELERATORS
        if (card := prices._card("aws", SimpleNamespace(instance_name="x", gpu_name=one.name, gpu_memory=one.memory)))
    }
    assert len(known) >= 35
    assert known <= load_gpus().keys()


def test_a_broken_cache_is_said_in_one_sentence_and_the_shipped_prices_are_used(served: dict[str, bytes], path: Path) -> None:
    refresh_prices(["aws"], path=path, today=TODAY)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:100], b"", b"\xff\xfe\x00", b"<html>", whole.replace(b"USD", b"EUR")):
        path.write_bytes(content)
        offers, problem = current_offers(path)
        assert offers == load_offers()
        assert str(problem).startswith(f"the refreshed prices in {str(path)!r} cannot be read (")
        assert "\n" not in str(problem)
    assert refresh_prices(["aws"], path=path, today=TODAY).offers == {"aws": 2}
    assert path.read_bytes() == whole


@pytest.mark.parametrize("place", ["file/cache/offers.csv", "folder"])
def test_a_cache_that_cannot_be_written_is_one_sentence(served: dict[str, bytes], tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(PlannerError, match="cannot be written"):
        refresh_prices(["aws"], path=tmp_path / place, today=TODAY)
    assert current_offers(tmp_path / place).offers == load_offers()


def test_a_full_disk_leaves_the_last_refresh(served: dict[str, bytes], path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refresh_prices(["aws"], path=path, today=TODAY)
    before = path.read_bytes()

    def full(part: Path, content: bytes) -> None:
        with open(part, "wb") as file:
            file.write(content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(PlannerError, match=r"cannot be written \(No space left on device\)"):
        refresh_prices(["aws", "runpod"], path=path, today=TODAY)
    assert [(file.name, file.read_bytes()) for file in path.parent.iterdir()] == [("offers.csv", before)]


def test_without_gpuhunt_the_sentence_says_what_to_install(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gpuhunt", None)
    with pytest.raises(PlannerError, match=r"pip install 'finetune-planner\[prices\]'$"):
        refresh_prices(path=path)
    assert current_offers(path) == (load_offers(), None)


def test_a_provider_that_cannot_be_asked_is_named(path: Path) -> None:
    with pytest.raises(UnknownName, match="no provider named 'aws2'; did you mean 'aws'"):
        refresh_prices(["aws2"], path=path)
    with pytest.raises(PlannerError, match=r"prices of 'seeweb' cannot be refreshed; these can: aws, .*vast$"):
        refresh_prices(["seeweb"], path=path)


def test_the_providers_that_can_be_refreshed_are_gpuhunt_s() -> None:
    from gpuhunt._internal import catalog

    assert set(prices._PUBLISHED.values()) <= set(catalog.OFFLINE_PROVIDERS)
    assert {module for module, _ in prices._ASKED.values()} <= set(catalog.ONLINE_PROVIDERS)
    assert set(REFRESHABLE) <= {offer.provider_id for offer in load_offers()}


def test_the_cache_is_in_the_user_s_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform == "linux":
        assert cache_path() == tmp_path / "finetune-planner" / "offers.csv"
    assert cache_path().name == "offers.csv"
