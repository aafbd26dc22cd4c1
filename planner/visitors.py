"""What `planner app` sends with each page, and how many visitors it takes at once."""

from datetime import UTC, datetime
from typing import Any

from planner.texts import LANGUAGES, translated

__all__ = ["FULL", "HEADERS", "at_most"]

# Jupyter's page starts from inline scripts, builds widgets from blobs and evaluates what require.js and plotly.js compile: those
# stay allowed. What is left is what matters: nothing from or to another host, and no other site may frame the page.
_POLICY = {
    "default-src": "'self'",
    "script-src": "'self' 'unsafe-inline' 'unsafe-eval' blob: data:",
    "worker-src": "'self' blob:",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self' blob: data:",
    "object-src": "'none'",
    "base-uri": "'self'",
    "form-action": "'self'",
    "frame-ancestors": "'self'",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {sources}" for name, sources in _POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # a plan is in the page's address
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
_GONE_SECONDS, _FORGOTTEN_SECONDS = 60, 3600
FULL = "This app has as many visitors as it takes at once ({count}). The page tries again by itself every 30 seconds."


def at_most(count: int) -> Any:
    """A hook for Voila that lets `count` kernels live, one a visit.

    Where all are taken, the place goes of a page that was closed a minute ago or left alone for an hour; a plan lives in the page's
    address, so that nobody loses one by it. Else the newcomer is told, with status 503.
    """

    def hook(request_handler: Any, **_: Any) -> None:
        kernels = request_handler.kernel_manager
        taken = kernels.list_kernel_ids()
        if len(taken) < count:
            return
        idle = {kernel_id: seconds for kernel_id in taken if (seconds := _spare_seconds(kernels, kernel_id)) is not None}
        if idle:
            from tornado.ioloop import IOLoop

            IOLoop.current().add_callback(kernels.shutdown_kernel, max(idle, key=lambda kernel_id: idle[kernel_id]), now=True)
            return
        from tornado.web import Finish

        request_handler.set_status(503)
        request_handler.set_header("Retry-After", "30")
        raise Finish(_page(count))

    return hook


def _spare_seconds(kernels: Any, kernel_id: str) -> float | None:
    """For how long a kernel has done nothing, where its place may be given away."""
    model = kernels.kernel_model(kernel_id)
    seconds = (datetime.now(UTC) - datetime.fromisoformat(model["last_activity"])).total_seconds()
    limit = _FORGOTTEN_SECONDS if model["connections"] else _GONE_SECONDS
    return seconds if model["execution_state"] != "busy" and seconds >= limit else None


def _page(count: int) -> str:
    lines = "".join(f'<p lang="{language}">{translated(FULL, language).format(count=count)}</p>' for language in LANGUAGES)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        '<meta http-equiv="refresh" content="30"><meta name="color-scheme" content="light dark"><title>503</title>'
        f'<body style="font:16px/1.6 system-ui,sans-serif;max-width:38rem;margin:20vh auto;padding:0 1rem"><main>{lines}</main>'
    )
