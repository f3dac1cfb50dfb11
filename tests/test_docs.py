"""The Python in the guides runs, as one program for each of them."""

import re
import textwrap
from pathlib import Path

import pytest
from conftest import python_output

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```", re.M | re.S)
NEEDS_A_TPU_COMPILER = {"aot.md"}


def program(guide):
    return "\n".join(textwrap.dedent(code) for _, code in BLOCK.findall(guide.read_text()))


GUIDES = {g.name: g for g in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if program(g)}


@pytest.mark.parametrize("name", sorted(GUIDES.keys() - NEEDS_A_TPU_COMPILER))
def test_a_guide_runs(name, tmp_path):
    python_output(f"import os; os.chdir({str(tmp_path)!r})\n" + program(GUIDES[name]))


def test_guides_have_programs():
    assert len(GUIDES) >= 8
