"""Each cause of a loss is explained."""

from __future__ import annotations

from spark_rtps.transport.protocol.policies import LossCause
from tests.docs.document_links import ROOT


def test_each_cause_is_explained() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert [cause for cause in LossCause if f"\n| `{cause}` | " not in text] == []
