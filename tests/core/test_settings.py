"""Environment variables: one table, typed, with errors for what cannot be meant."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from crossinfer.core.errors import SettingsError
from crossinfer.core.settings import VARIABLES, Settings, read_settings


def test_defaults() -> None:
    assert read_settings({"HOME": "/somewhere"}) == Settings()


def test_values_are_parsed() -> None:
    settings = read_settings(
        {
            "CROSSINFER_CACHE": "/a/b",
            "CROSSINFER_DEVICE": "vulkan:1",
            "CROSSINFER_THREADS": "3",
            "CROSSINFER_DEBUG": "2",
            "CROSSINFER_VALIDATION": "1",
        }
    )
    assert settings == Settings(Path("/a/b"), "vulkan:1", 3, 2, validation=True)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("CROSSINFER_THREADS", "0", "is '0'; it takes an integer"),
        ("CROSSINFER_THREADS", "many", "is 'many'; it takes an integer"),
        ("CROSSINFER_DEBUG", "4", "is '4'; it takes 0 to 3"),
        ("CROSSINFER_VALIDATION", "yes", "is 'yes'; it takes 0 or 1"),
        ("CROSSINFER_PRECISION", "half", "is 'half'; it takes exact or fast"),
        ("CROSSINFER_DEVICE", " ", "takes device names"),
        ("CROSSINFER_CACHE", "", "takes a folder"),
        ("CROSSINFER_THREAD", "2", "CROSSINFER_THREAD is not a setting of crossinfer"),
    ],
)
def test_bad_values_are_errors(name: str, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read_settings({name: text})


def test_the_table_covers_every_setting() -> None:
    fields = [field.name for field in dataclasses.fields(Settings)]
    assert [variable.field for variable in VARIABLES] == fields
