"""The page of settings is the one that the configuration gives, and every field has its help."""

from __future__ import annotations

import dataclasses

import pytest

from myxtts.config.config import SECTIONS
from myxtts.config.reference import field_help, settings_page
from tests.processes import ROOT


@pytest.mark.parametrize("part", sorted(SECTIONS))
def test_every_setting_has_its_help(part: str) -> None:
    assert set(field_help(SECTIONS[part])) == {item.name for item in dataclasses.fields(SECTIONS[part])}


def test_the_page_in_docs_is_current() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")

    assert page == settings_page(), "run python -m tools.write_settings"
