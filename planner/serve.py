"""The two servers behind `planner app` and `planner lab`, on this machine only unless asked otherwise.

Both run in this process until Ctrl+C. Jupyter is imported inside the functions: `import planner` stays light.
"""

import errno
import os
import shutil
import socket
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from planner.errors import PlannerError
from planner.plotly_js import plotly_js
from planner.visitors import HEADERS, at_most

__all__ = ["MOST_VISITORS", "notebooks_folder", "serve_app", "serve_lab"]

_PACKAGE = Path(__file__).parent
MOST_VISITORS = 60  # kernels of about 70 MB: half of a machine with 8 GiB


def notebooks_folder() -> Path:
    """The notebooks: beside the package in a checkout, inside it when installed from a wheel."""
    for folder in (_PACKAGE.parent / "notebooks", _PACKAGE / "notebooks"):
        if (folder / "workbook.ipynb").is_file():
            return folder
    raise PlannerError("the notebooks are missing from this installation; install the package again")


def serve_app(
    *,
    port: int | None = None,
    open_browser: bool = True,
    ip: str = "127.0.0.1",
    token: str = "",
    notebook: Path | None = None,
    most_visitors: int = MOST_VISITORS,
    idle_s: int = 600,
) -> None:
    """Serve the workbook (or another notebook) with Voila: no code cells, no files, no other API, idle kernels ended.

    A closed page's kernel ends after `idle_s` seconds. With a `token` a visitor signs in with it, or opens the page with ?token=TOKEN once.
    """
    notebook = notebook or notebooks_folder() / "workbook.ipynb"
    if not notebook.is_file():
        raise PlannerError("there is no notebook {path}", path=str(notebook))
    _need("voila", "the app")
    port = _free_port(ip, port, first=8866)
    _find_template()
    from traitlets.config import Config
    from voila.app import Voila

    config = Config(
        {
            "Voila": {
                "ip": ip, "port": port, "port_retries": 0, "open_browser": open_browser, "log_level": "ERROR", "token": token,
                "tornado_settings": {"headers": HEADERS},
            },
            "VoilaConfiguration": {
                "template": "planner",
                "allow_template_override": "NO",
                "allow_theme_override": "NO",
                "strip_sources": True,
                "show_tracebacks": False,
                "file_allowlist": [],
                "file_denylist": [".*"],
                "prelaunch_hook": at_most(most_visitors),
                # What the page needs and nothing else that happens to be installed.
                "extension_allowlist": ["@jupyter-widgets/jupyterlab-manager", "@voila-dashboards/widgets-manager8", "anywidget"],
            },
            # A closed tab does not stop its kernel (seen every time), so idle ones are ended.
            "MappingKernelManager": {"cull_interval": min(60, idle_s), "cull_idle_timeout": idle_s, "cull_connected": False},
        }
    )  # fmt: skip
    with TemporaryDirectory() as folder:
        # The page fetches plotly.js from here while the kernel starts; without this the kernel would send it afterwards.
        (Path(folder) / "plotly.min.js").write_text(plotly_js(), encoding="utf-8")
        config.VoilaConfiguration.extra_labextensions_path = [folder]
        config.VoilaConfiguration.resources = {"plotly_url": "voila/labextensions/plotly.min.js"}
        app = Voila(config=config)
        app.initialize([str(notebook)])
        print(f"The workbook is at http://{ip}:{port}/ (Ctrl+C stops it)", flush=True)
        if not token and ip not in ("127.0.0.1", "::1", "localhost"):
            print("Whoever reaches this port can open it; --token WORD asks visitors for a word", flush=True)
        app.start()


def serve_lab(*, port: int | None = None, open_browser: bool = True, ip: str = "127.0.0.1") -> None:
    """Open JupyterLab on the notebooks; on a copy in the current folder where the installed ones cannot be written."""
    _need("jupyterlab", "the notebooks")
    port = _free_port(ip, port, first=8888)
    _find_template()
    folder = notebooks_folder()
    if not os.access(folder, os.W_OK) or folder.parent == _PACKAGE:
        folder = _copy(folder, Path.cwd() / "planner-notebooks")
    from jupyterlab.labapp import LabApp

    options = {
        "ServerApp.ip": ip,
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.open_browser": open_browser,
        "ServerApp.root_dir": folder,
        "ServerApp.allow_root": True,
        "ServerApp.log_level": "WARN",
        "LabApp.default_url": "/lab/tree/workbook.ipynb",
        # No request for news or newer versions.
        "LabApp.news_url": None,
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
    }
    LabApp.launch_instance(argv=[f"--{name}={value}" for name, value in options.items()])


def _need(module: str, what: str) -> None:
    if find_spec(module) is None:
        raise PlannerError("{what} needs the package {module!r}: pip install {module}", what=what, module=module)


def _free_port(ip: str, wanted: int | None, *, first: int) -> int:
    """The port asked for, or the first free one of twenty when none is asked for."""
    for port in [wanted] if wanted is not None else range(first, first + 20):
        with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((ip, port))
            except OverflowError:
                raise PlannerError("there is no port {port}; a port is a number from 0 to 65535", port=port) from None
            except OSError as error:
                if error.errno == errno.EADDRINUSE and wanted is None:
                    continue
                if error.errno == errno.EADDRINUSE:
                    raise PlannerError(
                        "port {port} is in use by another program; choose another with --port", port=port
                    ) from error
                raise PlannerError(
                    "port {port} on {ip} cannot be opened; choose another with --port", port=port, ip=ip
                ) from error
            return int(probe.getsockname()[1])
    raise PlannerError("ports {first} to {last} are all in use; choose one with --port", first=first, last=first + 19)


def _find_template() -> None:
    """Let Jupyter find the page template in this package, also where it was not installed into share/jupyter."""
    path = [str(_PACKAGE / "workbook" / "share" / "jupyter"), *filter(None, os.environ.get("JUPYTER_PATH", "").split(os.pathsep))]
    os.environ["JUPYTER_PATH"] = os.pathsep.join(dict.fromkeys(path))


def _copy(source: Path, target: Path) -> Path:
    target.mkdir(parents=True, exist_ok=True)
    for notebook in source.glob("*.ipynb"):
        if not (target / notebook.name).exists():
            shutil.copyfile(notebook, target / notebook.name)
    return target
