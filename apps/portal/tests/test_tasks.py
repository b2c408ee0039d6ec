"""The program of the portal's tasks, without a cluster."""

from __future__ import annotations

from pathlib import Path

import cut
import eyas.stay
import pytest
from cutout import StackingError


def test_an_exposure_stays_unpacked_as_long_as_its_digest_is_the_same(
    survey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cut, "_kept", type(cut._kept)())
    digests = {"a.fits": "one", "b.fits": "one", "c.fits": "two", "d.fits": None}
    monkeypatch.setattr(eyas.stay, "digest_of", digests.__getitem__)
    source = sorted((survey / "m13" / "r").glob("*.fits"))[0].read_bytes()
    Path("a.fits").write_bytes(source)
    first = cut.image_of("a.fits")
    # Nothing is read for these bytes any more, and another file with them keeps its name.
    again = cut.image_of("b.fits")
    assert (again.name, again.pixels) == ("b.fits", first.pixels)
    for name in ("c.fits", "d.fits"):
        with pytest.raises(StackingError, match="does not exist"):
            cut.image_of(name)
    Path("d.fits").write_bytes(source)
    assert cut.image_of("d.fits").pixels == first.pixels
    assert list(cut._kept) == ["one"], "what has no digest is read each time"
    monkeypatch.setattr(cut, "KEPT_BYTES_MAX", cut.n_bytes(first))
    Path("c.fits").write_bytes(source)
    cut.image_of("c.fits")
    assert list(cut._kept) == ["two"], "the one that was used last stays"
