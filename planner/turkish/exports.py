"""Exports to training engines."""

__all__ = ["EXPORTS"]

EXPORTS = {
    "{target} has no bottleneck adapters; export another method": "{target} bottleneck adaptörlerini desteklemiyor; başka bir yöntemi dışa aktarın",
    "{path!r} was not written by an export, so it is left as it is; name another folder": "{path!r} bir dışa aktarımla yazılmamış, bu yüzden dokunulmadı; başka bir klasör verin",
}
