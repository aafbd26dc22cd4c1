"""Exports to training engines."""

__all__ = ["EXPORTS"]

EXPORTS = {
    "{target} has no bottleneck adapters; export another method": "{target} bottleneck adaptörlerini desteklemiyor; başka bir yöntemi dışa aktarın",
    "{target} has no method {method!r}; export to TRL, or plan one of {known}": "{target} {method!r} yöntemini desteklemiyor; TRL'e aktarın ya da şunlardan birini planlayın: {known}",
    "{target} has no tensor parallelism; plan fsdp or zero3, or export to TRL": "{target} tensör paralelliğini desteklemiyor; fsdp ya da zero3 planlayın ya da TRL'e aktarın",
    "{path!r} was not written by an export, so it is left as it is; name another folder": "{path!r} bir dışa aktarımla yazılmamış, bu yüzden dokunulmadı; başka bir klasör verin",
}
