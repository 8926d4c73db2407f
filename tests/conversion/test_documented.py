import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conversion.md"


@pytest.mark.slow
def test_every_code_block_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 4
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    assert "gain (1 value, up to 1e+06)" in printed
    assert "float16 -> float32" in printed
    assert names["model"].layers[-1].kernel.dtype == "bfloat16"
