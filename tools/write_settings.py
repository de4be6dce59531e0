"""Writes docs/settings.md from the configuration: `python -m tools.write_settings`. A test checks it."""

from __future__ import annotations

from pathlib import Path

from myxtts.config.reference import settings_page

TARGET = Path(__file__).parent.parent / "docs" / "settings.md"

if __name__ == "__main__":
    TARGET.write_text(settings_page(), encoding="utf-8")
