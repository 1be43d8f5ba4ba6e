"""From the objects of a page to its HTML, by the templates beside this module. Everything is escaped."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from dither_server import formats
from dither_server.dashboard.assets import Asset
from dither_server.dashboard.charts import Chart, facts_line, intervals_words
from dither_server.dashboard.health_page import REASONS
from dither_server.dashboard.sessions import Session
from dither_server.shuffled import amplified

_FILTERS: Final = {
    "whole": formats.whole,
    "number": formats.number,
    "percent": formats.percent,
    "level": formats.level,
    "size": formats.size,
    "intervals": intervals_words,
    "portion": formats.portion,
    "interval": formats.interval,
    "moment": formats.moment,
    "duration": formats.duration,
    "plural": formats.plural,
    "amplified": amplified,
}


@dataclass(frozen=True)
class Page:
    """A page that keeps itself up to date.

    Attributes:
        title: of the tab.
        main: HTML of its content.
        charts: what the script draws, by name.
        said: the page in one sentence, told to a screen reader now and then.
    """

    title: str
    main: str
    charts: Mapping[str, Chart] = field(default_factory=dict)
    said: str = ""


class Renderer:
    """Renders templates.

    Args:
        assets: files that pages load; their addresses go into the pages.
        project: name in the registry.
    """

    def __init__(self, assets: Mapping[str, Asset], project: str) -> None:
        self._environment = Environment(
            loader=PackageLoader("dither_server.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= _FILTERS
        self._environment.globals |= {
            "asset": lambda name: f"/static/{name}?v={assets[name].tag}",
            "project": project,
            "facts_line": facts_line,
            "reasons": REASONS,
        }
        self._environment.globals["m"] = self._environment.get_template("macros.html").module

    def fragment(self, template: str, **context: Any) -> str:
        """The content of a page."""
        return self._environment.get_template(template).render(context)

    def document(self, page: Page, *, live: str, session: Session | None, path: str) -> str:
        """A whole page.

        Args:
            page: its content.
            live: address of its live form; empty where it has none.
            session: of whom it is shown to.
            path: its address, which the navigation marks.
        """
        return self._environment.get_template("base.html").render(
            page=page, live=live, session=session, path=path
        )
