"""The SBOM of ``make sbom`` is CycloneDX, by CycloneDX's own validator, and complete."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.conformance

ROOT = Path(__file__).resolve().parents[2]
SUPPLY = ROOT / ".venv-supply/bin"
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
sys.exit(fault and str(fault))
"""


@pytest.mark.skipif(not SUPPLY.exists(), reason="`make conformance` installs .venv-supply")
def test_an_environment_is_a_valid_and_complete_sbom(tmp_path: Path) -> None:
    path = tmp_path / "sbom.json"
    command = ["make", "--no-print-directory", "sbom", f"SBOM_OF={sys.prefix}", f"SBOM={path}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    done = subprocess.run(
        [SUPPLY / "python", "-c", VALIDATE, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    sbom = json.loads(path.read_bytes())
    assert sbom["bomFormat"] == "CycloneDX" and sbom["specVersion"] == "1.6"
    assert sbom["metadata"]["component"]["name"] == "vehicle-recorder"
    listed = {(canonicalize_name(c["name"]), c["version"]) for c in sbom["components"]}
    installed = {(canonicalize_name(d.metadata["Name"]), d.version) for d in distributions()}
    missing = {name for name, _ in installed - listed} - {"vehicle-recorder"}
    assert missing == set()
    assert sum(bool(component.get("licenses")) for component in sbom["components"]) > 50
    assert sbom["dependencies"]
