"""The files that pages load: our style and script, and plotly's from its installed package.

Each has an address that changes with its content, so browsers may keep it for ever. plotly is not imported: only its
file is wanted.
"""

import gzip
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_OWN: Final = {
    "charts.js": "text/javascript; charset=utf-8",
    "dashboard.css": "text/css; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
PLOTLY: Final = "plotly.min.js"


@dataclass(frozen=True)
class Asset:
    """One file.

    Attributes:
        name: in its address.
        mimetype: of it.
        body: its bytes.
    """

    name: str
    mimetype: str
    body: bytes

    @cached_property
    def tag(self) -> str:
        """Changes with the content."""
        return sha256(self.body).hexdigest()[:16]

    @cached_property
    def packed(self) -> bytes:
        """The same as gzip, packed when it is first asked for."""
        return gzip.compress(self.body, compresslevel=6, mtime=0)


def load_assets() -> dict[str, Asset]:
    """The assets by name.

    Raises:
        FileNotFoundError: a package is not installed as it must be.
    """
    folder = files("dither_server.dashboard").joinpath("static")
    own = [Asset(name, mimetype, folder.joinpath(name).read_bytes()) for name, mimetype in _OWN.items()]
    plotly = Asset(PLOTLY, "text/javascript; charset=utf-8", _plotly_file().read_bytes())
    return {asset.name: asset for asset in (*own, plotly)}


def _plotly_file() -> Path:
    spec = find_spec("plotly")
    folders = (spec and spec.submodule_search_locations) or ()
    for folder in folders:
        found = Path(folder) / "package_data" / PLOTLY
        if found.is_file():
            return found
    raise FileNotFoundError("the package plotly is not installed with its script plotly.min.js")
