import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("profile", [[], ["--profile", "operator"]], ids=["users", "operators"])
def test_types_are_those_of_the_document(profile: list[str]) -> None:
    generate = [sys.executable, "-W", "ignore", "-m", "datamodel_code_generator", *profile]
    check = subprocess.run([*generate, "--check"], cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert check.returncode == 0, f"generate them again, see CONTRIBUTING.md: {check.stdout}{check.stderr}"
