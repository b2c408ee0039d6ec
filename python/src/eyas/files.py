"""Files as arguments of functions."""

from __future__ import annotations

import os


class File:
    """A file that a function is given: an argument `File("sky/a.fits")` arrives as the path of a local copy.

    The file is a declared input of the task, so that the task goes to a node that has it. `location` is a path of this machine
    or of shared storage, or a URL of a home (`s3://...`). A relative path is taken from the working folder. A location that ends in `/`
    is a directory: the function gets the path of a copy with all files in it.
    """

    __slots__ = ("location",)

    def __init__(self, location: str | os.PathLike[str]) -> None:
        text = os.fsdecode(location)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"the name of the file {text!r} is not UTF-8: rename it") from None
        if "://" not in text:
            is_directory = text.endswith("/")
            text = os.path.abspath(text)
            if is_directory:
                text = os.path.join(text, "")
        self.location = text

    def __repr__(self) -> str:
        return f"File({self.location!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and self.location == other.location

    def __hash__(self) -> int:
        return hash(self.location)
