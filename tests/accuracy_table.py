"""The table of README.md that says how wrong the closed form is: `python tests/accuracy_table.py --write`."""

import sys
from pathlib import Path

from planner.validation_views import left_out_table

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- accuracy: python tests/accuracy_table.py --write -->", "<!-- end of accuracy -->"


def table() -> str:
    """The table, as Markdown."""
    found = left_out_table()
    lines = [f"| {' | '.join(row)} |" for row in (found.columns, *found.rows)]
    return "\n".join([lines[0], "|---" * len(found.columns) + "|", *lines[1:]])


def in_readme() -> str:
    """What README.md shows now."""
    return README.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()


if __name__ == "__main__":
    print(table())
    if "--write" in sys.argv:
        before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
        README.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
